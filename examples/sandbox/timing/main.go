// Command timing runs the tests of the example in each way, and prints how long they take, as a
// table for docs/internals/testing-compared.md.
//
//	go -C examples/sandbox run ./timing -dsn 'postgres://…'
package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	dsn := flag.String("dsn", "sqlite:shop.db?_pragma=foreign_keys(1)", "the server")
	ways := flag.String("ways", "truncation,database,sandbox", "the ways that are compared")
	rounds := flag.Int("rounds", 5, "how often each way is run; the first run, which makes the template, is printed beside the median of the others")
	parallel := flag.Int("parallel", 8, "how many tests run at once")
	flag.Parse()
	if err := run(os.Stdout, *dsn, strings.Split(*ways, ","), *rounds, *parallel); err != nil {
		slog.Error("timing", "error", err)
		os.Exit(1)
	}
}

func run(out io.Writer, dsn string, ways []string, rounds, parallel int) error {
	dir, err := os.MkdirTemp("", "sandbox-timing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "shop.test")
	if text, err := exec.Command("go", "test", "-c", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests: %w: %s", err, text)
	}
	took := map[string][]time.Duration{}
	for range rounds {
		for _, way := range ways { // in turns, so that a slow minute hurts all
			t, err := once(binary, dsn, way, parallel)
			if err != nil {
				return err
			}
			took[way] = append(took[way], t)
		}
	}
	fmt.Fprintf(out, "| 200 tests, %d at once | first run | later runs | a test |\n|---|---|---|---|\n", parallel)
	for _, way := range ways {
		first, later := took[way][0], median(took[way][1:])
		fmt.Fprintf(out, "| %s | %.1f s | %.1f s | %.1f ms |\n", way, first.Seconds(), later.Seconds(), later.Seconds()*1000/200)
	}
	return nil
}

// once runs the tests in one way. The error shows what the tests have printed, and not the DSN.
func once(binary, dsn, way string, parallel int) (time.Duration, error) {
	begun := time.Now()
	text, err := exec.Command(binary, "-test.parallel", fmt.Sprint(parallel), "-dsn", dsn, "-way", way).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("the tests in the way %s: %w: %s", way, err, text)
	}
	return time.Since(begun), nil
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
