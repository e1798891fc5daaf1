package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// explain says what a DSN means.
type explain struct {
	Query string `help:"Say whether this query may be in a pipeline (pool_pipeline), and why not, instead."`
	DSN   string `arg:"" optional:"" env:"POOLDRIVER_DSN" help:"The DSN. Other users of the machine can read a command line: without the argument it is taken from POOLDRIVER_DSN, and - reads it from the standard input."`
}

// Run prints the target and the settings.
func (e *explain) Run(w io.Writer) error {
	dsn, err := readDSN(e.DSN)
	if err != nil {
		return err
	}
	c := pooldriver.New(dsn)
	if err := c.Err(); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if e.Query != "" {
		d, err := dialects.Find(dsn)
		if err == nil {
			_, err = fmt.Fprintln(w, pipelined(c, d, e.Query))
		}
		return err
	}
	return describe(w, c)
}

// pipelined says whether a query may be in a pipeline, and why not.
func pipelined(c *pooldriver.Connector, d dialects.Dialect, query string) string {
	switch effect := d.Effect(query); {
	case d.Name() != "postgres":
		return "No: only PostgreSQL has pipelines."
	case effect != dialects.Clean:
		return fmt.Sprintf("No: it may leave something in its session (%s).", effect)
	case !d.OnlyReads(query):
		return "No: it is not known to read and do nothing else."
	case settingOf(c, "pool_pipeline") == "0":
		return "No: pool_pipeline is 0. With pool_pipeline=16 it may" + may
	}
	return "It may" + may
}

const may = ", when it waits for a connection: outside of tasks and transactions, not by a *sql.Stmt, without settings of its context, after it has run three times alone, while it lately took less than 5 ms and its result less than 64 KiB."

func settingOf(c *pooldriver.Connector, name string) string {
	for _, s := range c.Settings() {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// readDSN returns the DSN, which - has at the standard input.
func readDSN(dsn string) (string, error) {
	if dsn == "-" {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return "", fmt.Errorf("reading the DSN: %w", err)
		}
		dsn = strings.TrimSpace(string(text))
	}
	if dsn == "" {
		return "", errors.New("no DSN: give it as the argument, in POOLDRIVER_DSN, or on the standard input with -")
	}
	return dsn, nil
}

// describe prints where c leads, the settings that differ from their defaults, and the defaults.
func describe(w io.Writer, c *pooldriver.Connector) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "connects to\t%s\n", c.Target())
	for i, host := range c.Hosts() {
		fmt.Fprintf(t, "server %d\t%s\n", i+1, host)
	}
	fmt.Fprintf(t, "driver\t%T\n\n", c.Driver())
	if params := c.DriverParams(); len(params) > 0 {
		fmt.Fprintln(t, "said to the driver:")
		for _, p := range params {
			fmt.Fprintf(t, "  %s\t%s\n", p.Name, p.Value)
		}
		fmt.Fprintln(t)
	}
	for _, set := range []bool{true, false} {
		title := "set in the DSN"
		if !set {
			title = "defaults"
		}
		first := true
		for _, s := range c.Settings() {
			if (s.Value != s.Default) != set {
				continue
			}
			if first {
				fmt.Fprintf(t, "%s:\n", title)
				first = false
			}
			value := s.Value
			if set {
				value += " (default " + s.Default + ")"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\n", s.Name, value, s.Meaning)
		}
		if !first {
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}
