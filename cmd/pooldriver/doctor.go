package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/cmd/pooldriver/internal/doctor"
)

// doctorCommand examines a server.
type doctorCommand struct {
	DSN      string `arg:"" optional:"" help:"The DSN. Without it, it is taken from POOLDRIVER_DSN, and - reads it from the standard input: other users of the machine can read a command line."`
	Replicas int    `default:"1" help:"How many processes of the program there are."`
	Surge    string `default:"0" help:"How many more there are during a rollout: a number, or a percentage, such as Kubernetes' 25%."`
	JSON     bool   `name:"json" help:"Print JSON, for programs."`
	Strict   bool   `help:"Warnings end with status 2, too."`
}

// Help is shown by --help.
func (d *doctorCommand) Help() string {
	return "Status 0: nothing is bad. 1: it could not look, such as for a mistake in the DSN. 2: something is bad. It writes nothing to the database."
}

// Run examines, prints, and returns what the exit status is to be.
func (d *doctorCommand) Run(w io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dsn, err := readDSN(cmp.Or(d.DSN, os.Getenv("POOLDRIVER_DSN")))
	if err != nil {
		return err
	}
	c := pooldriver.New(dsn)
	if err := c.Err(); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	plan, err := doctor.NewPlan(c, d.Replicas, d.Surge)
	if err != nil {
		return err
	}
	report := &doctor.Report{Target: c.Target()}
	report.Settings(c.Settings())
	doctor.Server(ctx, report, dsn, &plan)
	return d.print(w, report)
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
