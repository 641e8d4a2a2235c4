# Two commands on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
# Versions to install; `make test CONSTRAINED=` in a new environment takes the newest.
CONSTRAINED ?= -c constraints.txt

.PHONY: demo serve-demo test test-rest test-lowest journeys lint fuzz torture soak bench bench-scale format docs figures results notebooks picture release clean

demo: $(VENV)/.installed
	$(BIN)/crowdrank demo

# Try the judging service: a project with texts and simulated colleagues; Ctrl-C stops it.
serve-demo: $(VENV)/.installed-serve
	$(BIN)/crowdrank serve --demo

test: $(VENV)/.installed-dev
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| echo "Chromium is not installed: tests in a browser are skipped (Debian: apt-get install chromium)."
	@command -v pg_ctlcluster >/dev/null || command -v initdb >/dev/null \
		|| echo "PostgreSQL is not installed: its tests are skipped (Debian: apt-get install postgresql)."
	@[ -n "$$CROWDRANK_DATA" ] || echo "CROWDRANK_DATA is not set: tests on public data are skipped (see crowdrank datasets)."
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ONLY)

# Run the tests that `make test` skipped, once their data and programs are there; a test that is skipped again fails.
test-rest: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --skipped-before $(ONLY)

# Run the tests with the lowest versions of dependencies that pyproject.toml allows, in an environment of their own.
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal $(ONLY)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Stories of users on whole public data sets (in CROWDRANK_DATA), up to an hour; `make test` runs them on small parts.
journeys: $(VENV)/.installed-dev
	CROWDRANK_JOURNEYS=full $(BIN)/python -m pytest tests/journeys $(JOURNEYS)

# Read damaged inputs, up to 25 minutes; options: make fuzz FUZZ="--count 1000 --seed 7".
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tools.fuzz $(FUZZ)

# Kill processes, fill disks, run concurrent writers, up to 25 minutes; options: make torture TORTURE="--kills 50".
# Forked processes hang with several OpenMP threads.
torture: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.torture $(TORTURE)

# Judge for a simulated day, about five minutes; options: make soak SOAK="--hours 8 --seed 7".
soak: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.soak $(SOAK)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks $(ONLY)
	$(BIN)/python -m tools.figures

# Build the documentation into site/.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "The documentation: site/index.html (to search it, serve it: python3 -m http.server -d site)"

# Run experiments, seconds to an hour each (`make results ONLY="rf10 web5"`), on the public data in CROWDRANK_DATA.
EXPERIMENTS := rf10 web5 dl20 auto grades expert-scale preferences calibration robustness difficulty feature-prior rankers crowd-rankers rigor quality experts expert-budget learned-labels ensemble-members pointwise-trees distillation next-label next-label-features settled service estimate estimate-coverage plan looks gate null-worlds overlap
results: $(VENV)/.installed-dev
	for experiment in $(or $(ONLY),$(EXPERIMENTS)); do $(BIN)/python -m experiments $$experiment -o docs/results || exit 1; done
	$(BIN)/python -m tools.figures

# Update the generated parts of docs/ from docs/results/*.json, the summary of the demo and the commands.
figures: $(VENV)/.installed-dev
	$(BIN)/python -m tools.figures

# Run the notebooks of examples/ and store their outputs.
notebooks: $(VENV)/.installed-dev
	$(BIN)/python -m tools.notebooks

# Take the screenshots of the report of the demo and of the judging service for the pages; needs Chromium.
picture: demo $(VENV)/.installed-dev
	$(BIN)/python -m tools.picture crowdrank-demo/run/report.html docs/assets/report.png
	$(BIN)/python -m tools.picture service docs/assets
	$(BIN)/python -m tools.figures

# Build the wheel and the sdist, and check them in a new environment.
release: $(VENV)/.installed-dev
	$(BIN)/python -m tools.release

# Measure time and memory on up to 100M labels: about 15 GB of disk under TMPDIR, half an hour or more.
bench-scale: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.scale $(SCALE)
	$(BIN)/python -m tools.figures

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis site dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "crowdrank needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(CONSTRAINED) -e ".[report]"
	@touch $@

$(VENV)/.installed-serve: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(CONSTRAINED) -e ".[report,serve]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(CONSTRAINED) -e ".[dev]"
	@touch $@ $(VENV)/.installed

$(LOWEST)/.installed: pyproject.toml tools/lowest_versions.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python tools/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(LOWEST)/constraints.txt -e ".[test,peers]"
	@touch $@
