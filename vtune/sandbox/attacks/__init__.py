"""Run hostile snippets against a real sandbox on this machine, and see whether it holds.

`suite` reads a folder of attacks, `placeholders` fills them in, `world` sets up what they may want to
harm, `facts` looks at files and processes, `checks` says what was harmed, `runner` brings them together.
"""
