package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// sqlite copies files in a directory of the user's own. The copy of a small file takes less than a
// millisecond, so there is no stock. Locks are exclusive transactions on files of SQLite: the
// operating system ends them with the process, and they work wherever SQLite does.
//
//	lock.db             locked by whoever makes a template, or removes what others have left
//	HASH.db             a template; its time of change is when it may be removed
//	run-OWNER/owner.db  locked for as long as the owner lives
//	run-OWNER/N.db      its clones
//	kept/TEST-N.db      clones that were left for people
type sqlite struct {
	plan  *Plan
	names names
	dir   string
	owner *fileLock
}

func newSQLite(p *Plan) *sqlite {
	s := &sqlite{plan: p, names: newNames(p.Hash, p.DSN)}
	s.dir = filepath.Join(os.TempDir(), "pooldriver-sandbox-"+strconv.Itoa(os.Getuid()), shorten(p.DSN, 12))
	return s
}

func (s *sqlite) template() string { return filepath.Join(s.dir, s.plan.Hash+".db") }
func (s *sqlite) run() string      { return filepath.Join(s.dir, runPrefix+s.names.owner) }

const runPrefix = "run-"

func (s *sqlite) open(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	lock, err := s.lock(ctx, filepath.Join(s.dir, "lock.db"), day)
	if err != nil {
		return err
	}
	defer lock.free()
	// Under the lock: others remove a directory whose owner's lock is free.
	if err := os.MkdirAll(s.run(), 0o700); err != nil {
		return err
	}
	if s.owner, err = s.lock(ctx, filepath.Join(s.run(), "owner.db"), time.Minute); err != nil {
		return err
	}
	s.sweep(ctx)
	if _, err := os.Stat(s.template()); err == nil {
		return s.touch()
	}
	return s.makeTemplate(ctx)
}

// touch says that the template is used.
func (s *sqlite) touch() error {
	until := time.Now().Add(s.plan.Keep)
	return os.Chtimes(s.template(), until, until)
}

// makeTemplate is called under the lock. The template gets its name when it is complete.
func (s *sqlite) makeTemplate(ctx context.Context) error {
	unfinished := s.template() + unfinishedSuffix
	if err := removeFile(unfinished); err != nil { // of a process that was killed
		return err
	}
	to, err := dsn.SQLiteFile(s.plan.DSN, unfinished)
	if err != nil {
		return err
	}
	if err := s.plan.migrate(ctx, to); err != nil {
		return errors.Join(err, removeFile(unfinished))
	}
	if _, err := os.Stat(unfinished + "-wal"); err == nil {
		return fmt.Errorf("the migrations have left a connection to %s open; without its write-ahead log the file cannot be copied", unfinished)
	}
	if _, err := os.Stat(unfinished); err != nil { // migrations that do nothing
		if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
			return err
		}
	}
	if err := os.Rename(unfinished, s.template()); err != nil {
		return err
	}
	return s.touch()
}

// hold has nothing to do: the lock is that of an open file.
func (s *sqlite) hold(context.Context) error { return nil }

func (s *sqlite) take(context.Context, string) (string, error) { return "", nil }

func (s *sqlite) stocked(context.Context) (int, error) { return 0, nil }

func (s *sqlite) make(_ context.Context, _ string) (string, error) {
	name := filepath.Join(s.run(), strconv.FormatInt(s.names.made.Add(1), 10)+".db")
	return name, errors.Join(copyFile(s.template(), name), s.touch())
}

func (s *sqlite) remove(_ context.Context, name string) error { return removeFile(name) }

func (s *sqlite) keep(_ context.Context, name, test string) (string, error) {
	kept := s.kept(name, test)
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return name, err
	}
	for _, suffix := range fileSuffixes {
		if err := os.Rename(name+suffix, kept+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return name, err
		}
	}
	return kept, nil
}

// kept is where a clone is left.
func (s *sqlite) kept(name, test string) string {
	test = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\?#%&;,=:*"<>|`, r) {
			return '-'
		}
		return r
	}, test)
	return filepath.Join(s.dir, "kept", test+"-"+s.names.owner+"-"+filepath.Base(name))
}

func (s *sqlite) dsn(name string) string {
	to, _ := dsn.SQLiteFile(s.plan.DSN, name) // open has seen that it can be changed
	return to
}

func (s *sqlite) close() {
	if s.owner != nil {
		s.owner.free()
	}
	_ = os.RemoveAll(s.run())
}

// sweep is called under the lock. It removes the clones of owners that are gone, and templates
// whose time is over. What cannot be removed is left to the next process.
func (s *sqlite) sweep(ctx context.Context) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch info, err := e.Info(); {
		case err != nil, path == s.run():
		case strings.HasPrefix(e.Name(), runPrefix):
			if lock, err := s.lock(ctx, filepath.Join(path, "owner.db"), 0); err == nil {
				lock.free()
				_ = os.RemoveAll(path)
			}
		case strings.HasSuffix(e.Name(), ".db") && e.Name() != "lock.db" && time.Now().After(info.ModTime()):
			_ = removeFile(path)
		}
	}
}

// fileLock is an exclusive transaction on a file.
type fileLock struct {
	db *sql.DB
	tx *sql.Tx
}

func (s *sqlite) lock(ctx context.Context, file string, wait time.Duration) (*fileLock, error) {
	to, err := dsn.SQLiteFile("", file)
	if err != nil {
		return nil, err
	}
	db, err := s.plan.Open(fmt.Sprintf("%s?_txlock=exclusive&_pragma=busy_timeout(%d)", to, wait.Milliseconds()), 1)
	if err != nil {
		return nil, err
	}
	// The transaction outlives the test that happens to begin it.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &fileLock{db, tx}, nil
}

func (l *fileLock) free() {
	_ = l.tx.Rollback()
	_ = l.db.Close()
}

// fileSuffixes are those of the files of one database.
var fileSuffixes = []string{"", "-wal", "-shm", "-journal"}

func removeFile(name string) error {
	var errs []error
	for _, suffix := range fileSuffixes {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}
