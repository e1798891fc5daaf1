package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Instructions of an operation, by "perf stat": those of the program alone, without the
// kernel's. They hardly depend on what else the machine does.

// perfMissing says why they cannot be counted here, if they cannot.
func perfMissing(ctx context.Context) error {
	_, err := instructions(ctx, exec.CommandContext(ctx, "true"))
	return err
}

// instructions runs a command beneath perf, and returns how many it executed.
func instructions(ctx context.Context, c *exec.Cmd) (float64, error) {
	dir, err := os.MkdirTemp("", "pooldriver-perf-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "stat")
	under := exec.CommandContext(ctx, "perf", append([]string{"stat", "-x,", "-e", "instructions:u", "-o", file, "--"}, c.Args...)...)
	under.Env = c.Env
	if _, err := output(under); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return parsePerf(string(text))
}

// parsePerf reads what perf stat -x, writes: VALUE,UNIT,EVENT,… after comments.
func parsePerf(text string) (float64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ",")
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "instructions") {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("perf stat counts no instructions on this machine: %s", fields[0])
		}
		return n, nil
	}
	return 0, errors.New("perf stat says nothing of instructions")
}

// count counts the instructions of an operation by each build: what twice as many
// operations take longer. With one processor the scheduler does not search for work.
func (r *changeRow) count(ctx context.Context, builds []build, n int, servers []*server) (err error) {
	together, account, err := stage(ctx, r.title, servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, together()) }()
	for _, b := range builds {
		var taken [2]float64
		for i := range taken {
			c, err := workerCommand(ctx, b.program, job{Title: r.title, Account: account, Count: n * (i + 1)})
			if err != nil {
				return err
			}
			c.Env = append(c.Env, "GOMAXPROCS=1")
			if taken[i], err = instructions(ctx, c); err != nil {
				return err
			}
		}
		r.instructions = append(r.instructions, (taken[1]-taken[0])/float64(n))
	}
	return nil
}
