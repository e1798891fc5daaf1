package postgres

import (
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
)

// pipelineStatements are the statements that a session has prepared for pipelines. pgx shows
// nobody its own cache. A statement that pgx knows by its text would take the place of pgx's
// cached one, so pgx does not know of these.
type pipelineStatements struct {
	pgx        int // the size of pgx's own cache; -1: pipelines are impossible; 0: not looked up yet
	most       int // the most statements that are kept
	byText     map[string]*list.Element
	order      list.List // of *pipelineStatement, the last used first
	named      uint64    // how many names were given; the next name has the next number
	generation uint64    // of PipelineLimits
	// closing are the names of statements that the next pipeline closes.
	closing []string
}

type pipelineStatement struct {
	*pgconn.StatementDescription
	formats []int16 // the formats of the result's columns
}

// mostPipelineStatements bounds what one session keeps prepared for pipelines.
const mostPipelineStatements = 128

// admit takes the limits of a pipeline, and reports whether there may be one.
func (p *pipelineStatements) admit(most int, limits dialects.PipelineLimits) bool {
	p.most = min(most, limits.Statements, mostPipelineStatements)
	if p.generation != limits.Generation {
		p.dropAll()
		p.generation = limits.Generation
	}
	return p.most > 0
}

// HasPipelined implements dialects.Pipeliner.
func (s *session) HasPipelined(text string, generation uint64) bool {
	p := &s.pipelined
	e := p.byText[text]
	if e == nil || p.generation != generation {
		return false
	}
	p.order.MoveToFront(e) // what is prepared next takes the place of another one
	return true
}

// get prepares text unless it is prepared.
func (p *pipelineStatements) get(ctx context.Context, pg *pgconn.PgConn, text string) (*pipelineStatement, error) {
	if e := p.byText[text]; e != nil {
		p.order.MoveToFront(e)
		return e.Value.(*pipelineStatement), nil
	}
	// Behind a proxy that shares connections and knows no statements, another client may have
	// prepared a statement of this name: then it has the same text.
	p.named++
	digest := sha256.Sum256([]byte(text))
	name := fmt.Sprintf("pooldriver_%x_%d", digest[:16], p.named)
	description, err := pg.Prepare(ctx, name, text, nil)
	if err != nil {
		p.closing = append(p.closing, name) // the error may have come after the statement, and PgBouncer keeps the name
		return nil, err
	}
	for p.order.Len() >= p.most {
		p.drop(p.order.Back().Value.(*pipelineStatement))
	}
	s := &pipelineStatement{description, resultFormats(description.Fields)}
	if p.byText == nil {
		p.byText = map[string]*list.Element{}
	}
	p.byText[text] = p.order.PushFront(s)
	return s, nil
}

// drop makes the next pipeline close s. The present one may still use s.
func (p *pipelineStatements) drop(s *pipelineStatement) {
	if e := p.byText[s.SQL]; e != nil && e.Value == s {
		p.order.Remove(e)
		delete(p.byText, s.SQL)
		p.closing = append(p.closing, s.Name)
	}
}

// dropAll is called when the server may read the texts in another way from now on.
func (p *pipelineStatements) dropAll() {
	for p.order.Len() > 0 {
		p.drop(p.order.Back().Value.(*pipelineStatement))
	}
}

// forget is called when the server has closed all statements.
func (p *pipelineStatements) forget() {
	p.order.Init()
	p.byText, p.closing = nil, nil
}
