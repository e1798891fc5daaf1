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

// sqlite copies files in a directory of the user's own. Locks are exclusive transactions on files of SQLite: the operating
// system ends them with the process, and they work wherever SQLite does.
//
//	lock           locked by a process that makes a template, or removes what others have left
//	HASH.db        a template; its time of change is when it may be removed
//	run-N.lock     locked for as long as the test of run-N lives
//	run-N/N.db     the test's clone
//	kept/TEST-N.db clones that were left for people
type sqlite struct {
	plan Plan
	dir  string
	// The fields below are the clone's.
	number string
	held   *fileLock
}

func openSQLite(p Plan) *sqlite {
	return &sqlite{plan: p, dir: filepath.Join(os.TempDir(), "pooldriver-sandbox-"+strconv.Itoa(os.Getuid()), shorten(p.DSN, 12))}
}

const (
	runPrefix  = "run-"
	lockSuffix = ".lock"
	day        = 24 * time.Hour
)

func (s *sqlite) template() string { return filepath.Join(s.dir, s.plan.Hash+".db") }
func (s *sqlite) run() string      { return filepath.Join(s.dir, runPrefix+s.number) }

func (s *sqlite) prepare(ctx context.Context) (recipe, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return recipe{}, err
	}
	lock, err := s.lock(ctx, filepath.Join(s.dir, "lock"), day)
	if err != nil {
		return recipe{}, err
	}
	defer lock.free()
	s.sweep(ctx)
	if _, err := os.Stat(s.template()); err != nil {
		if err := s.makeTemplate(ctx); err != nil {
			return recipe{}, err
		}
	}
	until := time.Now().Add(s.plan.Keep)
	return recipe{}, os.Chtimes(s.template(), until, until)
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
	return os.Rename(unfinished, s.template())
}

func (s *sqlite) make(ctx context.Context, _ recipe, _ string) (name, to string, err error) {
	s.number = unique()
	// The lock comes before the directory: others remove a directory whose lock is free.
	if s.held, err = s.lock(ctx, s.run()+lockSuffix, 0); err != nil {
		return "", "", err
	}
	if err := os.Mkdir(s.run(), 0o700); err != nil {
		return "", "", err
	}
	name = filepath.Join(s.run(), s.number+".db")
	if err := copyFile(s.template(), name); err != nil {
		return "", "", err
	}
	to, err = dsn.SQLiteFile(s.plan.DSN, name)
	return name, to, err
}

// hold has nothing to do: nobody can take the lock of an open file away.
func (s *sqlite) hold(context.Context, string) error { return nil }

func (s *sqlite) remove(context.Context, string) error { return os.RemoveAll(s.run()) }

func (s *sqlite) keep(_ context.Context, name, test string) (string, error) {
	test = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\?#%&;,=:*"<>|`, r) {
			return '-'
		}
		return r
	}, test)
	kept := filepath.Join(s.dir, "kept", test+"-"+filepath.Base(name))
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

// close removes what remove or keep has left of the clone, and last the lock.
func (s *sqlite) close() {
	if s.held == nil {
		return
	}
	s.held.end(s.run())
}

// sweep is called under the lock. It removes the clones of processes that are gone, and templates whose time is over. What
// cannot be removed is left to the next process.
func (s *sqlite) sweep(ctx context.Context) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch info, err := e.Info(); {
		case err != nil:
		case e.IsDir() && strings.HasPrefix(e.Name(), runPrefix):
			if lock, err := s.lock(ctx, path+lockSuffix, 0); err == nil {
				lock.end(path)
			}
		// A process was killed between its lock and its directory. A younger lock may be about to be taken.
		case strings.HasSuffix(path, lockSuffix) && time.Since(info.ModTime()) > day:
			if _, err := os.Stat(strings.TrimSuffix(path, lockSuffix)); err != nil {
				_ = os.Remove(path)
			}
		case strings.HasSuffix(path, ".db") && time.Now().After(info.ModTime()):
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

// end removes the directory that l guards, and l last.
func (l *fileLock) end(dir string) {
	_ = os.RemoveAll(dir)
	l.free()
	_ = os.Remove(dir + lockSuffix)
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
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
