/* What the facts are of decides what the page shows. */
if (facts.sheet) sheet(facts.sheet);
else report();
