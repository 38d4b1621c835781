"""Whether looking is honest: `vtune faithfulness`, and programs that attack sandbox and reward."""
