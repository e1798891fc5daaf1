package sandbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Migration is what makes the tables of a new database, for Database.
//
// Exactly one of Run and RunDSN is set. Files and Version say what the function depends on. They
// are hashed: as long as they stay the same, the function is not called again. Set Files if the
// migrations are files:
//
//	//go:embed migrations
//	var migrations embed.FS
//
//	var shop = sandbox.Migration{Files: migrations, Run: func(ctx context.Context, db *sql.DB) error {
//		return goose.UpContext(ctx, db, "migrations")
//	}}
//
// If neither Files nor Version is set, the test binary is hashed. This is always right, and needs
// no thought, but the migrations run again for each package and after each change of code.
type Migration struct {
	// Run makes the tables of an empty database, to which db is a handle through pooldriver. It is
	// called for whichever test comes first, and on MySQL and MariaDB perhaps for several tests at
	// once, for different databases: it must not use a testing.TB. ctx ends if that test ends. db is
	// closed when Run returns.
	Run func(ctx context.Context, db *sql.DB) error
	// RunDSN is instead of Run, for tools that open the database themselves. It must close what
	// it opens. The DSN is pooldriver's, with the password.
	RunDSN func(ctx context.Context, dsn string) error
	// Files are the files of the migrations. The names and contents of all of them are hashed.
	Files fs.FS
	// Version is any text that is hashed: a number that a person raises, the version of the
	// library that migrates, the text of the schema itself.
	Version string
}

// How long a template that nobody uses stays on the server. The template of a test binary is out of
// date after the next change of code.
const (
	keepTemplate       = 7 * 24 * time.Hour
	keepBinaryTemplate = 15 * time.Minute
)

// check reports a mistake of the program.
func (m Migration) check() error {
	if (m.Run == nil) == (m.RunDSN == nil) {
		return errors.New("a Migration needs exactly one of the functions Run and RunDSN")
	}
	return nil
}

// hash names what the migrations make: their files and version, or the test binary. The module is
// part of the hash: two programs on one server may both have a version 1.
func (m Migration) hash() (string, error) {
	sum := sha256.New()
	if info, ok := debug.ReadBuildInfo(); ok {
		_, _ = fmt.Fprintf(sum, "module %q\n", info.Main.Path)
	}
	_, _ = fmt.Fprintf(sum, "version %q\n", m.Version)
	if m.Files != nil {
		if err := hashFiles(sum, m.Files); err != nil {
			return "", fmt.Errorf("reading the Files of the migrations: %w", err)
		}
	}
	if m.hashesBinary() {
		binary, err := binaryHash()
		if err != nil {
			return "", fmt.Errorf("reading the test binary, which is hashed because the Migration has neither Files nor a Version: %w", err)
		}
		_, _ = io.WriteString(sum, binary)
	}
	return hex.EncodeToString(sum.Sum(nil))[:10], nil
}

func (m Migration) hashesBinary() bool { return m.Files == nil && m.Version == "" }

func (m Migration) keep() time.Duration {
	if m.hashesBinary() {
		return keepBinaryTemplate
	}
	return keepTemplate
}

func hashFiles(sum hash.Hash, files fs.FS) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "file %q %d\n%s", path, len(content), content)
		return err
	})
}

// binaryHash is the hash of the running program.
var binaryHash = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
})

// run calls the function of the program.
func (m Migration) run(ctx context.Context, dsn string) error {
	if m.RunDSN != nil {
		return m.RunDSN(ctx, dsn)
	}
	db, err := openHandle(dsn)
	if err != nil {
		return err
	}
	// Also if Run panics, or ends the goroutine.
	defer db.Close()
	if err := m.Run(ctx, db); err != nil {
		return err
	}
	return db.Close()
}
