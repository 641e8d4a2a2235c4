#!/bin/sh
# Upload the model to Solr: HOST=https://search.example:8983 COLLECTION=name sh upload.sh
set -eu
cd "$(dirname "$0")"
: "${HOST:?run it as: HOST=https://search.example:8983 COLLECTION=name sh upload.sh}"
: "${COLLECTION:?run it as: HOST=https://search.example:8983 COLLECTION=name sh upload.sh}"
if grep -q REPLACE_ME feature_store.json; then
  echo "Replace every REPLACE_ME in feature_store.json first." >&2
  exit 2
fi
put() { curl -sS --fail-with-body -X PUT -H 'Content-Type: application/json' --data-binary "@$1" "$SCHEMA/$2"; }
SCHEMA="$HOST/solr/$COLLECTION/schema"
put feature_store.json feature-store
put model.json model-store
