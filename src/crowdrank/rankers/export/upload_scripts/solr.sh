#!/bin/sh
# Upload the model: HOST=https://search.example:8983 COLLECTION=name sh upload.sh
set -eu
: "${HOST:?set it to the address of the server}" "${COLLECTION:?set it to the name of the collection}"
cd "$(dirname "$0")"
if grep -q REPLACE_ME feature_store.json; then
  echo "Replace every REPLACE_ME in feature_store.json first." >&2
  exit 2
fi
put() {
  curl -sS --fail-with-body -X PUT -H 'Content-Type: application/json' --data-binary "@$1" \
    "$HOST/solr/$COLLECTION/schema/$2"
}
put feature_store.json feature-store
put model.json model-store
