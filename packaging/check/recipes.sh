#!/usr/bin/env bash
# Holds action.yml and the recipes of docs/ci.md to their schemas: recipes.sh DIRECTORY, with the programs of
# check-jsonschema in it.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first block of a language below a heading.
recipe() {
    awk -v heading="## $1" -v fence="\`\`\`$2" '
        $0 == heading { below = 1; next }
        below && /^## / { exit }
        below && $0 == fence { inside = 1; next }
        inside && /^```/ { exit }
        inside { print }
    ' docs/ci.md >"$work/$3"
    [[ -s $work/$3 ]] || { echo "docs/ci.md has no $2 below \"$1\"" >&2; exit 1; }
}

recipe 'GitHub Actions' yaml workflow.yml
recipe 'GitLab' yaml gitlab.yml
recipe 'Kubernetes and Kind' yaml manifest.yml

"$bin/check-jsonschema" --builtin-schema vendor.github-actions action.yml
"$bin/check-jsonschema" --builtin-schema vendor.github-workflows "$work/workflow.yml"
"$bin/check-jsonschema" --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci "$work/gitlab.yml"
"$bin/python" - "$work/manifest.yml" <<'PYTHON'
import sys
from ruamel.yaml import YAML

kinds = [document["kind"] for document in YAML(typ="safe").load_all(open(sys.argv[1]))]
assert kinds == ["Service", "Job"], kinds
print("manifest:", ", ".join(kinds))
PYTHON
"$bin/python" -m json.tool packaging/devcontainer/devcontainer-feature.json >/dev/null
for script in release packaging/*.sh packaging/*/*.sh; do
    bash -n "$script"
done
