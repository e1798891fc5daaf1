package virtual

import (
	"context"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// This file decides which queries may travel in a pipeline, and takes their answers.

// mayPipeline has op, a query, travel with others if it is known to be short and to read only, and is alone: it
// has no task, no transaction, no settings, and is sent as it is.
func (op *operation) mayPipeline(t *textcache.Text) {
	c := op.c
	judge, ok := c.source.config.Dialect.(dialects.ReadJudge)
	if !ok || t.Effect != dialects.Clean || op.virtual != nil || ctxsettings.Used() || !t.OnlyReads(judge.OnlyReads) {
		return
	}
	op.paced = t
	op.Pipelines = t.Pace.IsShort()
}

// takeAnswer ends an operation whose answer another one's connection has given.
func (op *operation) takeAnswer(ctx context.Context) error {
	c := op.c
	r := c.spare
	if r == nil {
		r = new(rows)
	}
	c.spare = nil
	r.checkout, r.columns = c, nil
	if err := c.held.TakeAnswer(&r.held, &op.Want); err != nil {
		return ctxerr.Of(ctx, err)
	}
	op.rows = r
	return nil
}
