# Two commands do everything: `make run` shows tidings at work, `make test` checks all that must hold.
# Each prepares .venv by itself; after the first time that takes no time.

BIN := .venv/bin
READY := .venv/.ready
# Half of their time tests wait for programs that they have started: two workers for each of two cores.
PYTEST := $(BIN)/python -m pytest -q -n 4 -p tests.spreading
# Of the Javas of this machine the first that Spark can use, which need not be that of PATH.
WITH_JAVA = java=$$(scripts/java) && JAVA_HOME=$$java

CLASSES := .venv/spark-classes.jsa

.PHONY: run test lint docs compiled soak bench lock generated clean

# The nodes of the demo: make run NODES=3 links three of them.
NODES ?= 1
run: $(READY)
	@$(WITH_JAVA) $(BIN)/tidings demo --nodes $(NODES)

# The second core renders the pages, writes down Spark's classes and compiles the tests while the first checks types.
test: $(READY)
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint docs $(CLASSES) compiled
	@echo "== tests"
	@scripts/tools
	@$(WITH_JAVA) $(PYTEST)

lint: $(READY)
	@echo "== style";     $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== types";     $(BIN)/mypy
	@$(BIN)/basedpyright --warnings
	@echo "== layers";    $(BIN)/lint-imports --no-logo --no-cache

# Renders docs/ and the API to build/docs; a warning, such as a link that leads nowhere, is an error.
docs: $(READY)
	@echo "== docs"
	@$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees -b html docs build/docs

# Otherwise each worker compiles all tests of a fresh checkout by itself. Tests that can't be compiled fail later.
compiled: $(READY)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true

# The tests that repeat something, with many times as many generated examples, storms and kills; TIDINGS_EFFORT says
# how many times: two quiet cores need about an hour for 10. A line tells of each test, and how far the run is. What came
# of it is printed at the end, and in build/soak.md.
soak: $(READY) $(CLASSES)
	@$(WITH_JAVA) TIDINGS_EFFORT=$${TIDINGS_EFFORT:-10} $(PYTEST) -vv -p tests.soaking

bench: $(READY)
	@mkdir -p benchmarks/results
	@$(BIN)/tidings bench matching --json benchmarks/results/matching.json
	@$(BIN)/tidings bench node --json benchmarks/results/node.json
	@$(BIN)/tidings bench queue --json benchmarks/results/queue.json
	@$(BIN)/tidings bench secure --json benchmarks/results/secure.json
	@$(BIN)/tidings bench gateway --json benchmarks/results/gateway.json
	@$(BIN)/tidings bench fair --json benchmarks/results/fair.json
	@$(WITH_JAVA) $(BIN)/tidings bench pipeline --json benchmarks/results/pipeline.json
	@$(WITH_JAVA) $(BIN)/tidings bench flows --json benchmarks/results/flows.json
	@$(BIN)/tidings bench overlay --json benchmarks/results/overlay.json
	@$(BIN)/tidings bench channel --json benchmarks/results/channel.json
	@$(BIN)/tidings bench adhoc --json benchmarks/results/adhoc.json
	@$(BIN)/tidings bench agents --json benchmarks/results/agents.json
	@$(BIN)/python benchmarks/plot.py

# Writes down the versions that are installed now, so that every machine gets the same.
lock:
	@$(BIN)/python scripts/lock.py > requirements.lock.new
	@mv requirements.lock.new requirements.lock

# Writes what is made from the code: the blocking client, the tables of settings and limits, the diagrams, the help.
generated: $(READY)
	@for script in blocking_client settings limits diagrams command_help; do $(BIN)/python scripts/$$script.py || exit 1; done

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml scripts/setup scripts/apt scripts/java
	@scripts/setup

# Tests run without it, only longer. Java takes it only if Spark has the same path there, without links in it.
$(CLASSES): $(READY) scripts/spark_classes.py
	@echo "== Spark's classes"
	@$(WITH_JAVA) TESTS_PYTHON=$(CURDIR)/$(BIN)/python PYSPARK_PYTHON=$(CURDIR)/tests/quick_python \
		SPARK_HOME=$$(cd .venv/lib/python3*/site-packages/pyspark && pwd -P) \
		$(BIN)/spark-submit --properties-file tests/quick_spark.conf \
		--driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit=$@.new" \
		scripts/spark_classes.py >.venv/spark-classes.log 2>&1 && mv -f $@.new $@ || echo "they could not be written down: see .venv/spark-classes.log"
