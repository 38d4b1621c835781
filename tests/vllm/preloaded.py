"""The last import of the fork server for engine cores and servers, after everything else."""

import gc

from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING

from tests.conftest import say_little

# To find a model's processor, transformers imports those of all models.
VIDEO_PROCESSOR_MAPPING.values()
say_little()

# Garbage collections in a fork would touch, and so copy, everything that the server has imported. A core
# unfreezes its heap at the end, for cases in which the process lives on.
gc.collect()
gc.freeze()
gc.unfreeze = lambda: None
