package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/sandbox/internal/clones"
)

// Place is where one test has its tables: a database or file of its own. Database makes it. It
// prints without its password.
type Place struct {
	// DB is a handle to the place through pooldriver, with the options of the DSN that the place
	// was made from. It is closed when the test ends.
	DB *sql.DB
	// Name is the name of the database, or the path of the file.
	Name string

	dsn   string
	label redact.Label
}

// DSN leads to the place. It is for code that opens its handles itself: close them before the test
// ends. It has the password, so do not log it.
func (p *Place) DSN() string { return p.dsn }

// String says where the place is, without secrets.
func (p *Place) String() string { return string(p.label) }

// Format prints String for every verb: %#v would reach the DSN.
func (p *Place) Format(f fmt.State, verb rune) { p.label.Format(f, verb) }

// MarshalText is String, for encoding/json.
func (p *Place) MarshalText() ([]byte, error) { return p.label.MarshalText() }

// LogValue is String, for log/slog.
func (p *Place) LogValue() slog.Value { return p.label.LogValue() }

// keepFlag and keepVariable ask that places of failed tests are kept. The variable is for runs of
// several packages: "go test ./... -sandbox.keep" fails in packages that do not know the flag.
var keepFlag = flag.Bool("sandbox.keep", false, "keep the databases of failed tests, and log their names")

const keepVariable = "SANDBOX_KEEP"

func keeps() bool {
	set, _ := strconv.ParseBool(os.Getenv(keepVariable))
	return *keepFlag || set
}

var errBubble = errors.New("it is called inside a bubble of testing/synctest, and shares the template with other tests; call it before synctest.Test")

// makePlace makes a Place of the kind for the test.
func makePlace(t testing.TB, kind clones.Kind, dsn string, m Migration) *Place {
	t.Helper()
	p, err := takePlace(t, kind, dsn, m)
	if err != nil {
		t.Fatalf("sandbox: no %s for %s: %v", kind, t.Name(), explain(err))
	}
	return p
}

func takePlace(t testing.TB, kind clones.Kind, dsn string, m Migration) (*Place, error) {
	t.Helper()
	if err := m.check(); err != nil {
		return nil, err
	}
	if bubble.Name(time.Now()) != "" {
		return nil, errBubble
	}
	hash, err := m.hash()
	if err != nil {
		return nil, err
	}
	clone, err := clones.Take(t.Context(), clones.Plan{
		Kind: kind, DSN: dsn, Hash: hash, Keep: m.keep(), Open: openAdmin, Migrate: m.run,
	}, t.Name())
	if err != nil {
		return nil, err
	}
	c := pooldriver.New(clone.DSN)
	p := &Place{label: redact.Label(c.Target()), DB: sql.OpenDB(c), Name: clone.Name, dsn: clone.DSN}
	t.Cleanup(func() {
		t.Helper()
		p.end(t, clone)
	})
	return p, c.Err()
}

// endTimeout bounds the removal of a place.
const endTimeout = time.Minute

// end closes the handle, and removes the place or keeps it.
func (p *Place) end(t testing.TB, clone *clones.Clone) {
	t.Helper()
	if err := p.DB.Close(); err != nil {
		t.Errorf("sandbox: closing the handle of %s: %v", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if !hasFailed(t) || !keeps() {
		if err := clone.Drop(ctx); err != nil {
			t.Errorf("sandbox: removing %s: %v; the next process that uses the sandbox tries again", p.Name, err)
		}
		return
	}
	name, err := clone.Keep(ctx, t.Name())
	if err != nil {
		t.Errorf("sandbox: keeping %s: %v", p.Name, err)
		return
	}
	where := p.String()
	if name != p.Name { // the file has been moved
		where = "the database of the test"
	}
	t.Logf("sandbox: %s is kept: %s. Nothing removes it but you", name, where)
}

// openHandle opens a DSN as the program would.
func openHandle(dsn string) (*sql.DB, error) {
	c := pooldriver.New(dsn)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// openAdmin opens a DSN for the package's own statements. The program's options for its tests, such
// as one connection, do not apply.
func openAdmin(dsn string, conns int) (*sql.DB, error) {
	c := pooldriver.New(dsn, func(c *pooldriver.Config) {
		c.MaxConns, c.MinConns, c.MinIdleConns = conns, 0, 0
		c.MaxConnLifetime, c.MaxConnIdleTime = 0, 0
		c.AcquireTimeout, c.MaxWaiters, c.QueueTarget, c.LeakAfter, c.TaskTimeout = 0, 0, 0, 0, 0
	})
	if err := c.Err(); err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// explain writes an error of the migrations: in full where it is met, and in short for each test
// after that.
func explain(err error) error {
	var broken *clones.MigrationError
	switch {
	case !errors.As(err, &broken):
		return err
	case broken.Test == "":
		return fmt.Errorf("%w (they are not run again in this process: later tests fail at once)", err)
	}
	return fmt.Errorf("the migrations have failed before: see the error of %s", broken.Test)
}
