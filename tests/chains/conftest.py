from tests.warm_sandboxes import warm_sandboxes

__all__ = ["warm_sandboxes"]
