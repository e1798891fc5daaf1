package virtual

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// This file decides which queries may be in a pipeline.

// paceOf returns the pace of op's text if op, a query, is one that may be in a pipeline: it only reads, and
// is sent as it is. follows is the same if the text is known to be short, else nil. A query that has a task or a
// transaction is in no pipeline: see Checkout.borrow.
func paceOf(op *operation, t *textcache.Text) (measured, follows *textcache.Pace) {
	if t.Effect != dialects.Clean || op.virtual != nil || !t.Is(textcache.OnlyReads, &op.c.source.judges) {
		return nil, nil
	}
	if t.Pace.IsShort() {
		follows = &t.Pace
	}
	return &t.Pace, follows
}
