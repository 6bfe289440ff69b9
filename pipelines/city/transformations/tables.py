"""Tables of the pipeline city, as tidings defines them; `spark` is put here by Spark.

raw            table              of readings: columns
good           view               of raw: plausible
clean          table              of good: each id once
rejected       materialized view  of raw, clean: all others, with the reason
aggregates     materialized view  of clean: window × type × cell
heard          view               of raw: signs of life
alarms         table              of clean, heard: above a limit, or silent
"""

from tidings.pipeline.definitions import define

define(globals()["spark"], "city")
