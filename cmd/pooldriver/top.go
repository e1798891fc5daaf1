package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/pooldriver/pooldriver/inspect"
)

// top shows a page of package inspect.
type top struct {
	URL   string        `arg:"" help:"Of the program's inspect.Handler: http://localhost:6060/debug/pool."`
	Every time.Duration `default:"1s" help:"Pause between two looks."`
	Once  bool          `help:"Look once and end. So does an output that is not a terminal."`
}

// Run shows the page until it is interrupted.
func (t *top) Run(w io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	address, err := jsonOf(t.URL)
	if err != nil {
		return err
	}
	if t.Once || !term.IsTerminal(int(os.Stdout.Fd())) {
		s, err := fetch(ctx, address)
		if err != nil {
			return err
		}
		text, _ := render(s, 120, 0, 0)
		_, err = io.WriteString(w, text)
		return err
	}
	return t.watch(ctx, w, address)
}

const (
	// The page is drawn on a separate screen, and the terminal's own screen stays as it was. Each
	// drawing begins at the top, and clears the rest of each line and the lines below.
	enter, leave = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
	home         = "\x1b[H"
	below        = "\x1b[J"
)

// watch fetches and draws the page again and again. If a fetch fails, watch shows the error and
// continues.
func (t *top) watch(ctx context.Context, w io.Writer, address string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan move, 64)
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		if before, err := term.MakeRaw(in); err == nil { // a key is read without the key Enter
			defer func() { _ = term.Restore(in, before) }()
			go readKeys(os.Stdin, func(m move) {
				select {
				case moved <- m:
				default: // the program does not answer, and many keys wait
				}
			}, stop)
		}
	}
	_, _ = io.WriteString(w, enter)
	defer func() { _, _ = io.WriteString(w, leave) }()
	from := 0
	for {
		s, lost := fetch(ctx, address)
		again := time.After(t.Every)
		for look := false; !look; {
			width, height, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				width, height = 80, 24
			}
			text := ""
			if lost != nil {
				text = clip(lost.Error(), width) + endLine
			} else {
				text, from = render(s, width, height, from)
			}
			if _, err := io.WriteString(w, home+text+below); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case m := <-moved:
				from = m.from(from, height)
			case <-again:
				look = true
			}
		}
	}
}

// jsonOf returns the address of the page's JSON.
func jsonOf(page string) (string, error) {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is no URL of a page: it is the program's inspect.Handler, such as http://localhost:6060/debug/pool", page)
	}
	q := u.Query()
	q.Set("format", "json")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// patience bounds one fetch.
const patience = 5 * time.Second

func fetch(ctx context.Context, address string) (s inspect.Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return s, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, fmt.Errorf("asking the program: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return s, fmt.Errorf("the program answers %s: %s", answer.Status, said)
	}
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return s, errors.Join(errors.New("the answer is not that of inspect.Handler"), err)
	}
	return s, nil
}
