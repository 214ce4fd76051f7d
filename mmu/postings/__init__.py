"""Which archived steps carry a term: an index that is derived from the store's entries, exact at every size."""

from mmu.postings.index import Index
from mmu.postings.shard import Carriers, Postings, Race, Shard

__all__ = ["Carriers", "Index", "Postings", "Race", "Shard"]
