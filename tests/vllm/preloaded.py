"""What the fork server of engine cores and servers imports last, when it has imported all else."""

import gc

from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING

from tests.conftest import say_little

# To find the processor of a model transformers imports those of all models.
VIDEO_PROCESSOR_MAPPING.values()
say_little()

# Each fork looks for garbage several times, which touches, and so copies, all that the server has imported. A
# core unfreezes its heap when it ends, for those that go on living in the same process.
gc.collect()
gc.freeze()
gc.unfreeze = lambda: None
