package main

import "time"

// venue is a database at some distance, with those who compete over it.
type venue struct {
	name     string
	far      bool // behind a proxy
	rounds   int  // as in contest
	entrants []entrant
	server   *server // nil: none, or it is far
	// cold are the entrants where a dial is slow; nil where nothing is dialled.
	cold []entrant
	// dialled counts the connections that cold have opened.
	dialled func() int64
	// promises are made by the contest's name.
	promises map[string][]promise
}

// entrant is a contender before a contest.
type entrant struct {
	name string
	part part
	open func(conns int) (client, error)
}

// part says in which contests an entrant takes part.
type part int

const (
	everywhere part = iota
	singly          // where one goroutine is at work: what it changes shows there
	beginning       // where transactions begin
)

const (
	plainName        = "plain sql.DB"
	preparedName     = plainName + ", prepared by hand"
	pgxpoolName      = "pgxpool"
	puddleName       = "puddle"
	lazyName         = ours + ", pool_lazy_begin"
	eagerName        = ours + ", " + eagerBegin
	pipelinedName    = ours + ", " + pipeline
	interpolated     = "interpolateParams=true"
	plainInterpolate = plainName + ", " + interpolated
	oursInterpolate  = ours + ", " + interpolated
)

// dialDelay is how long a dial takes in the cold burst.
const dialDelay = 150 * time.Millisecond
