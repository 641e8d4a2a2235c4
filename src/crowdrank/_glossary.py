"""Glossary of the words that the documentation, the report and the judging service share."""

GLOSSARY = {
    "adjudication": "final grade that a lead gives a pair on which answers differ",
    "answer": "what an assessor gives for a pair: a grade, or 'cannot judge'",
    "assessor": "person, LLM judge or program that gives judgments",
    "consensus": "relevance of each document that a model estimates from the judgments of all assessors",
    "document": "what is judged and ranked for a query: a page, a product, a passage",
    "draw": "sample of pairs with known probabilities, from which the quality of rankings is estimated",
    "expert grade": "grade of an expert, taken as correct: for training, for tests and to check assessors",
    "family": "assessors with correlated errors, such as the prompts of one LLM; they count as fewer assessors",
    "flag": "what stands out about an assessor: random, reversed, careless, strict, lenient, careful or few judgments",
    "generation": "judging of a pair from the start, as after new guidelines; only answers of the last one count",
    "grade": "step of an ordered scale of relevance, such as 0-4 or Bad, Fair, Good",
    "honeypot": "pair whose correct grade is known, which checks the attention of assessors",
    "informativeness": "information about relevance in one answer, in nats",
    "item": "pair of a query and a document in the tables of the library",
    "judge": "person or LLM that judges pairs in the judging service; an LLM judge is a model with a prompt",
    "judgment": "one answer of one assessor to one pair, as a row of a file",
    "label": "relevance of a document that is used for training or evaluation; a crowd label is one judgment",
    "lease": "pair handed out to a judge, and reserved until it is answered, given back or expired",
    "pair": "query and document to be judged together",
    "policy": "rule that decides which pair to judge next, and by whom",
    "pool": "pairs that may be judged",
    "preference": "judgment which of two documents is more relevant to a query",
    "query": "what a user searched for",
    "quota": "minimum and maximum number of answers to a pair from one kind of assessor",
    "ranking": "documents of each query in order of their scores",
    "round": "one batch of collecting labels: request, judge, add",
    "run": "ranking of one system for many queries, such as a TREC run file; also the command that goes from judgments "
    "to a report",
}
"""Meaning of each word, as a phrase without a period."""
