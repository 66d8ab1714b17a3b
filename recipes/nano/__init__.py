"""nano: data, tokenizer, model and training of edgekit's embedded NemotronH demonstration model."""
