# Two commands: `make lab` to learn, `make test` to check everything. Both can be repeated, both start from nothing but
# Python 3.11 to 3.13 and make. Everything they install goes into the folder .venv; `make clean` removes it.

VENV := .venv
BIN := $(VENV)/bin
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
# Another interpreter: make lab PYTHON=/path/to/python3.12
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c '$(SUPPORTED)' 2>/dev/null && echo $$name && break; done)
# More options for JupyterLab: make lab LAB="--no-browser --port=9999"
LAB ?=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help lab site site-test test test-thorough test-elsewhere bench picture clean

help:
	@echo "make lab     install, check the set-up, open JupyterLab on your copies of the lessons"
	@echo "make site    write the course as web pages into build/site, which need no kernel and no network"
	@echo "make test    install, then run every test: about 15 minutes on two cores"
	@echo "make test TOPIC=04   those that lesson 04 touches: a minute or two"
	@echo "make test-thorough   the same with more cases for each law"
	@echo "make test-elsewhere  what computes with floats, as on older processors and on 1, 2 and 4 threads"
	@echo "make bench   print accuracy and speed against other tools"
	@echo "make picture film the explorer for the README, in a minute"
	@echo "make clean   remove what these commands installed and built"

lab: $(VENV)/lab.done
	@$(BIN)/python -m classroom.cli lab $(LAB)

# More options: make site SITE="--url https://github.com/OWNER/NAME"
SITE ?=
site: $(VENV)/site.done
	@$(BIN)/python -m classroom.cli site $(SITE)

# Every page at three widths in both themes, every explorer in a browser: more than `make test` has time for.
site-test: export COURSE_TESTS := thorough
site-test: $(VENV)/test.done
	$(BIN)/python -m pytest -q tests/website

# Two processes share the cores: each keeps to one thread, and where a test asks for more, none waits in a loop.
test: export OMP_NUM_THREADS := 1
test: export OMP_WAIT_POLICY := PASSIVE
# tests/lessons/test_notebooks.py runs nbval over the notebooks: it compares every output that is not tagged as varying;
# tests/test_types.py runs mypy, tests/test_contracts.py lint-imports.
# With TOPIC=04, what lesson 04 touches alone (tests/one_lesson.py), and no mypy.
TOPIC ?=
test: $(VENV)/test.done
	$(BIN)/python -m ruff check .
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(if $(TOPIC),-p one_lesson --topic $(TOPIC))

# Laws are tried on all of their cases, not on enough to meet each part of them (tests/amount.py).
test-thorough: export COURSE_TESTS := thorough
test-thorough: test

# As far as this processor can pretend to be another. tests/lessons/test_elsewhere.py is the small part that `make test` runs.
MACHINES ?= as-is AVX2:avx2 SSE41:default
THREADS ?= 1 2 4
FLOATS ?= notebooks accumulation any_module checks* claims* digits distributed exactness gpu_cells graft_properties \
	kernels *layouts measure offload_real precision random_networks rebuilt recompute recordings speed trace
test-elsewhere: export OMP_WAIT_POLICY := PASSIVE
test-elsewhere: $(VENV)/test.done
	@for machine in $(MACHINES); do for threads in $(THREADS); do echo "== $$machine, $$threads threads"; \
		env $$(echo $$machine | sed -n 's/\(.*\):\(.*\)/ONEDNN_MAX_CPU_ISA=\1 ATEN_CPU_CAPABILITY=\2/p') OMP_NUM_THREADS=$$threads \
		$(BIN)/python -m pytest -q -n 2 --dist loadfile $(FLOATS:%=tests/*/test_%.py) || failed=1; done; done; \
		exit $${failed:-0}

bench: $(VENV)/test.done
	@$(BIN)/python -m benchmarks

picture: $(VENV)/test.done
	@$(BIN)/python -m docs.picture

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted or failed installation is taken up again by the next command.
$(VENV)/created:
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "This course needs Python 3.11, 3.12 or 3.13; found: $(or $(PYTHON),none)." \
		"Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/lab.done: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time this takes some minutes and about 2 GB ..."
	@$(INSTALL) -e ".[lab]"
	@touch $@

$(VENV)/site.done: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time this takes some minutes and about 2 GB ..."
	@$(INSTALL) -e ".[lab,site]"
	@touch $(VENV)/lab.done $@

$(VENV)/test.done: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time this takes some minutes and about 2 GB ..."
	@$(INSTALL) -e ".[lab,test,cluster,site]"
	@touch $(VENV)/lab.done $(VENV)/site.done $@
