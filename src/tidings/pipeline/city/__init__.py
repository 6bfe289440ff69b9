"""City pipeline: from the readings of a city's sensors to a few alarms that matter.

Each step is a function from DataFrames to a DataFrame and works on history and on streams alike. The same
functions are used in the declarative project (`pipelines/city`) and in the one continuous query (`flow`).

    raw → judged → clean → aggregates → levels ─┐
              └──→ rejected                     ├─→ alarms → the node
              └──→ heard → silent → silences ───┘
"""
