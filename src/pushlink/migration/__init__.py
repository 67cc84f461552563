"""What changes who owns what by a document: adopting, rebinding and revalidating links, each with receipts.

A migration is decided outside and written down in a manifest with its approval. The code here checks the document
against the rows under their locks and applies all of it or nothing; it never looks for rows by resemblance.
"""
