#!/bin/sh
# Upload the model to Vespa: APPLICATION=/path/to/application sh upload.sh
set -eu
cd "$(dirname "$0")"
: "${APPLICATION:?run it as: APPLICATION=/path/to/application sh upload.sh}"
if grep -q REPLACE_ME rank-profile.sd; then
  echo "Replace every REPLACE_ME in rank-profile.sd first." >&2
  exit 2
fi
mkdir -p "$APPLICATION/models"
cp model.json "$APPLICATION/models/products.json"
echo "Add rank-profile.sd to your schema, then run: vespa deploy $APPLICATION"
