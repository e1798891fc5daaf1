package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/cmd/pooldriver/internal/doctor"
)

// doctorCommand examines a server, or a program's pool.
type doctorCommand struct {
	Of       []string `arg:"" optional:"" name:"dsn-or-url" help:"The DSN, the URL of the program's inspect.Handler, or both. Without a DSN it is taken from POOLDRIVER_DSN, and - reads it from the standard input: other users of the machine can read a command line."`
	Replicas int      `default:"1" help:"How many processes of the program there are."`
	Surge    string   `default:"0" help:"How many more there are during a rollout: a number, or a percentage, such as Kubernetes' 25%."`
	JSON     bool     `name:"json" help:"Print JSON, for programs."`
	Strict   bool     `help:"Warnings end with status 2, too."`

	Load loadFlags `embed:""`
}

// Help is shown by --help.
func (d *doctorCommand) Help() string {
	return "Status 0: nothing is bad. 1: it could not look, such as for a mistake in the DSN. 2: something is bad. It writes nothing to the database."
}

// Run examines, prints, and returns what the exit status is to be.
func (d *doctorCommand) Run(w io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dsn, page, err := d.of()
	if err != nil {
		return err
	}
	var c *pooldriver.Connector
	report := new(doctor.Report)
	if dsn != "" {
		c = pooldriver.New(dsn)
		if err := c.Err(); err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		report.Target = c.Target()
	}
	plan, err := doctor.NewPlan(c, d.Replicas, d.Surge)
	if err != nil {
		return err
	}
	if page != "" {
		if err := program(ctx, report, page, &plan); err != nil {
			return err
		}
	}
	spare := 0
	if dsn != "" {
		report.Settings(c.Settings())
		spare = doctor.Server(ctx, report, dsn, &plan)
	}
	if d.Load.Load {
		if err := d.Load.run(ctx, report, dsn, &plan, spare); err != nil {
			return err
		}
	}
	return d.print(w, report)
}

// program examines the program whose inspector has this address.
func program(ctx context.Context, r *doctor.Report, page string, plan *doctor.Plan) error {
	address, err := jsonOf(page)
	if err != nil {
		return err
	}
	s, err := fetch(ctx, address)
	if err != nil {
		return err
	}
	p, err := doctor.Choose(s.Pools, r.Target)
	if err != nil {
		return err
	}
	doctor.Program(r, p, plan)
	if r.Target == "" {
		r.Target = p.Name
		r.Add(doctor.Finding{
			Level: doctor.Note, Check: "server", Found: "the server was not asked: the program's page shows no DSN",
			Type: "POOLDRIVER_DSN=… pooldriver doctor " + page,
		})
	}
	return nil
}

// of sorts the arguments.
func (d *doctorCommand) of() (dsn, page string, err error) {
	for _, a := range d.Of {
		into := &dsn
		if strings.HasPrefix(a, "http://") || strings.HasPrefix(a, "https://") {
			into = &page
		}
		if *into != "" {
			return "", "", errors.New("doctor takes one DSN and one URL at most")
		}
		*into = a
	}
	dsn = cmp.Or(dsn, os.Getenv("POOLDRIVER_DSN"))
	if dsn == "" && page != "" {
		return "", page, nil
	}
	dsn, err = readDSN(dsn)
	return dsn, page, err
}

// print prints the report, and returns its exit status.
func (d *doctorCommand) print(w io.Writer, r *doctor.Report) error {
	write := r.WriteText
	if d.JSON {
		write = r.WriteJSON
	}
	if err := write(w); err != nil {
		return err
	}
	if r.Count(doctor.Bad) > 0 || d.Strict && r.Count(doctor.Warn) > 0 {
		return ailing{}
	}
	return nil
}

// ailing is the error that is printed already, and whose exit status is 2.
type ailing struct{}

func (ailing) Error() string { return fmt.Sprintf("exit status %d", ailing{}.ExitCode()) }
func (ailing) ExitCode() int { return 2 }
