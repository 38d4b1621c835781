"""Run hostile snippets against a real sandbox on this machine, and see whether it holds.

`suite` reads a folder of attacks, `placeholders` fills them in, `world` sets up what they may want to harm,
`facts` inspects files and processes, `checks` reports what was harmed, `runner` puts everything together.
"""
