package dialects

import (
	"context"
	"database/sql/driver"
	"errors"
)

// A PipelinedQuery is one query of Pipeliner.QueryTogether.
type PipelinedQuery struct {
	Text     string
	Args     []driver.NamedValue
	Settings []ContextSetting // in force for this query alone
}

// PipelineLimits say what a session may keep for pipelines.
type PipelineLimits struct {
	Bytes      int    // of one result
	Statements int    // that stay prepared for pipelines; 0: the session does not pipeline
	Generation uint64 // statements that were prepared in another generation are prepared anew
}

// ErrTooLarge is the answer to a query whose result is larger than the limit of QueryTogether. The
// query was executed, and its rows were dropped.
var ErrTooLarge = errors.New("dialects: the result is too large to be kept in memory")

// ErrNotPipelined is the answer to a query that was not sent, because only the driver itself can
// execute it as the driver would. Executed alone, the query gives its rows or the driver's error.
var ErrNotPipelined = errors.New("dialects: the query cannot be sent together with others")

// A Pipeliner is a Session that can send several queries before it reads the first answer (a
// pipeline). Each query is a transaction of its own: the error of one changes nothing for the
// others.
type Pipeliner interface {
	Session

	// QueryTogether sends calls, and calls answer for each of them in their order, as soon as its
	// whole result has come. rows and errors are those of the driver's QueryContext, or the error is
	// ErrTooLarge or ErrNotPipelined.
	//
	// The session is as Clean or SetSettings has left it, and no transaction is open. If the session
	// cannot pipeline now or ever, the error is errors.ErrUnsupported, and nothing was sent. Any
	// other error says that no further answer comes: answer was not called for the rest of calls,
	// which the server may have executed. If ctx ends, the error is that of ctx, and the connection
	// is broken unless nothing was being executed.
	//
	// The rows are in memory. They stay valid while the session does something else, but they
	// convert values by what the session knows of types: one goroutine at a time uses the rows or
	// the session. A RowDetacher can detach their columns.
	QueryTogether(ctx context.Context, calls []PipelinedQuery, limits PipelineLimits, answer func(i int, rows driver.Rows, err error)) error

	// HasPipelined reports whether the next QueryTogether needs not prepare text in this generation.
	HasPipelined(text string, generation uint64) bool

	// Trial tries whether what lies between the session and its database can pipeline: some proxies
	// cannot, and never answer. ErrNotPipelined: this session cannot try that now, which says nothing of
	// others. errors.ErrUnsupported: no session with these settings can. After any other error the session
	// is closed.
	Trial(ctx context.Context) error
}

// An ArgumentKeeper is a Dialect whose sessions are Pipeliners.
//
// KeepArgument returns v as a pipeline uses it: later, in another goroutine, and without code of the program,
// because other queries would wait for that code. It calls the Value of a driver.Valuer, in place of the driver.
// size is about how many bytes v takes. ok is false if v refers to memory of the program, if Value fails, or if the
// driver may call other methods of v: then the query is in no pipeline. A query that is executed alone after all is
// given v itself.
//
// KeepSettings reports whether a query may be in a pipeline with these settings of its context.
type ArgumentKeeper interface {
	Dialect
	KeepArgument(v any) (kept any, size int, ok bool)
	KeepSettings(settings []ContextSetting) bool
}

// A WriteAsker is a Pipeliner that can ask the server whether a query that runs alone has written: a view may have
// functions that do, which its text does not show.
//
// AskWrites has the next query tell told, while its rows are read, whether it has written. If it fails, or nothing can be
// asked behind it, told is not called. If this session can never ask, told is called with false at once. DropQuestion
// follows when the driver has returned.
type WriteAsker interface {
	Pipeliner
	AskWrites(ctx context.Context, told func(wrote bool))
	DropQuestion()
}
