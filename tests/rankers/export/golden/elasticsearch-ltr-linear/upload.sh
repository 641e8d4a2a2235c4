#!/bin/sh
# Upload the model to the LTR plugin of Elasticsearch: HOST=https://search.example:9200 sh upload.sh
set -eu
cd "$(dirname "$0")"
: "${HOST:?run it as: HOST=https://search.example:9200 sh upload.sh}"
if grep -q REPLACE_ME featureset.json; then
  echo "Replace every REPLACE_ME in featureset.json first." >&2
  exit 2
fi
# The first command creates the store for features and models; it reports an error if there is one already.
curl -sS -X PUT "$HOST/_ltr" || true
post() { curl -sS --fail-with-body -X POST -H 'Content-Type: application/json' --data-binary "@$1" "$HOST/_ltr/$2"; }
post featureset.json _featureset/products
post model.json _featureset/products/_createmodel
