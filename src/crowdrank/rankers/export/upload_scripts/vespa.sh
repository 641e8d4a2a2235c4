#!/bin/sh
# Upload the model: APPLICATION=/path/to/application sh upload.sh
set -eu
: "${APPLICATION:?set it to the absolute path of the application package}"
cd "$(dirname "$0")"
if grep -q REPLACE_ME rank-profile.sd; then
  echo "Replace every REPLACE_ME in rank-profile.sd first." >&2
  exit 2
fi
mkdir -p "$APPLICATION/models"
cp model.json "$APPLICATION/models/MODEL_NAME.json"
echo "Add rank-profile.sd to your schema, then run: vespa deploy $APPLICATION"
