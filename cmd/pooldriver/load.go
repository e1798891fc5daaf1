package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/cmd/pooldriver/internal/doctor"
	"github.com/pooldriver/pooldriver/cmd/pooldriver/internal/sizing"
)

// loadFlags are the flags of a measurement under load.
type loadFlags struct {
	Load       bool          `help:"Measure, at last, how many statements the server answers with 1, 2, 3 … connections. It loads the server."`
	Query      []string      `sep:"none" placeholder:"SQL" help:"A statement of the load; several times for a mix."`
	Statements string        `type:"existingfile" placeholder:"FILE" help:"The mix: a file of SQL, or the log of a server that has recorded the program's statements."`
	For        time.Duration `default:"1m" help:"How long to measure, all sizes together."`
	Max        int           `placeholder:"N" help:"The most connections. Default: 64, or half of those that the server can spare."`
	SVG        string        `name:"svg" placeholder:"FILE" help:"Draw the curve into this file."`
}

const (
	usualMax = 64
	leastFor = time.Second
	// overtime is how much longer a measurement may take: a statement that has begun may end.
	overtime = 20 * time.Second
)

// run measures, and adds the result. spare is how many connections the server can spare; negative: nobody
// knows.
func (l *loadFlags) run(ctx context.Context, r *doctor.Report, dsn string, plan *doctor.Plan, spare int) error {
	switch {
	case dsn == "":
		return errors.New("--load needs a DSN")
	case l.For < leastFor:
		return fmt.Errorf("--for: %v is too short; the least is %v", l.For, leastFor)
	case l.Max < 0:
		return fmt.Errorf("--max: %d is too small; the least is 1", l.Max)
	}
	mix, err := l.mix()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == "login" && f.Level == doctor.Bad }) {
		return nil // the report says why there is no connection
	}
	if spare == 0 {
		r.Add(doctor.Finding{Level: doctor.Bad, Check: "load", Found: "nothing was measured: the server can spare no connection now"})
		return nil
	}
	most, err := l.most(spare)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.For+overtime)
	defer cancel()
	db := doctor.Open(dsn, most)
	defer func() { _ = db.Close() }()
	readers, refused, err := sizing.Readers(ctx, db, mix)
	if err != nil {
		return err
	}
	why := ""
	for _, text := range slices.Sorted(maps.Keys(refused)) {
		why = refused[text].Error()
		break
	}
	if len(readers) == 0 {
		return fmt.Errorf("%w: doctor runs only what can run in a transaction that may not write: %s", sizing.ErrNothing, why)
	}
	curve := sizing.Load(ctx, db, readers, sizing.Sizes(most, plan.Need()), l.For)
	curve.Statements, curve.LeftOut, curve.WhyLeftOut = len(readers), len(mix)-len(readers), why
	l.tell(r, &curve, plan)
	if l.SVG != "" {
		return os.WriteFile(l.SVG, []byte(curve.SVG(r.Target)), 0o644)
	}
	return nil
}

// mix reads the statements.
func (l *loadFlags) mix() (all []sizing.Statement, err error) {
	for _, text := range l.Query {
		all = append(all, sizing.Statement{Text: text})
	}
	if l.Statements != "" {
		file, err := os.Open(l.Statements)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		recorded, err := sizing.Read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Statements, err)
		}
		all = append(all, recorded...)
	}
	if len(all) == 0 {
		return nil, errors.New("--load needs statements: --query SQL, or --statements FILE")
	}
	return all, nil
}

// most is the largest size.
func (l *loadFlags) most(spare int) (int, error) {
	switch {
	case l.Max > 0 && spare > 0 && l.Max > spare:
		return 0, fmt.Errorf("--max: the server can spare %d connections now, fewer than %d", spare, l.Max)
	case l.Max > 0:
		return l.Max, nil
	case spare > 0:
		return min(usualMax, max(1, spare/2)), nil
	}
	return usualMax, nil
}

// tell adds the advice.
func (l *loadFlags) tell(r *doctor.Report, c *sizing.Curve, plan *doctor.Plan) {
	r.Load, r.Drawing = c, c.Text()
	f := doctor.Finding{Level: doctor.OK, Check: "load", Found: c.String() + fmt.Sprintf("; statements in the mix: %d, each size measured %d times", c.Statements, c.Rounds)}
	each := (c.Advice + plan.Replicas - 1) / plan.Replicas
	switch {
	case c.Advice == 0:
		f.Level, f.Follows = doctor.Bad, "no size can be advised: "+lastError(c)
	case c.Noisy():
		f.Level = doctor.Warn
		f.Follows = "the noise is larger than the 5 % by which sizes are judged, so this says little: measure longer, or when server and machine do less"
		f.Type = fmt.Sprintf("--for %v", 4*l.For)
	case c.Rises():
		f.Level = doctor.Note
		f.Follows = "the largest size was the best: more connections may be better still"
		f.Type = fmt.Sprintf("--max %d", 2*c.Advice)
	case plan.Need() < c.Advice:
		f.Level = doctor.Warn
		f.Follows = fmt.Sprintf("under load a part of the server stays unused: %s", plan.Product())
		f.Type = fmt.Sprintf("pool_max_conns=%d", each)
	case each < plan.MaxConns:
		f.Level = doctor.Note
		f.Follows = fmt.Sprintf("with more than %d connections of all processes together, the server answers hardly more of these statements, and each takes longer; a program that holds connections between its statements needs more", c.Advice)
		f.Type = fmt.Sprintf("pool_max_conns=%d", each)
	default:
		f.Follows = "that is what the pools have"
	}
	r.Add(f)
	if c.LeftOut > 0 {
		r.Add(doctor.Finding{
			Level: doctor.Warn, Check: "mix", Found: fmt.Sprintf("%d of %d statements were left out, because they would write or fail: %s", c.LeftOut, c.LeftOut+c.Statements, c.WhyLeftOut),
			Follows: "the advice is about the others",
		})
	}
}

func lastError(c *sizing.Curve) string {
	for _, p := range c.Points {
		if p.Error != "" {
			return p.Error
		}
	}
	return "the time was too short for one round"
}
