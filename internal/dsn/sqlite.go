package dsn

import (
	"errors"
	"strings"
)

// ofAFile are the parameters that say what the file of the DSN is. They are not true of another
// file.
var ofAFile = []string{"mode", "cache", "immutable", "vfs", "modeof"}

// SQLiteFile returns the DSN of another file, with the parameters of dsn.
func SQLiteFile(dsn, file string) (string, error) {
	if strings.ContainsAny(file, "?#%&;,=") {
		return "", errors.New("the path of the directory for temporary files has one of ? # % & ; , = in it; choose another one by TMPDIR")
	}
	_, query, _ := strings.Cut(dsn, "?")
	return join("sqlite:"+file, without(query, ofAFile...)), nil
}

// SQLiteKind returns what DSNs of files of one kind have in common: the file's name and the parameters. The
// directory is left out. It may be another one in each run, and a test has its own file anyway.
func SQLiteKind(dsn string) string {
	name, query, _ := strings.Cut(dsn, "?")
	if prefix := strings.IndexByte(name, ':'); prefix > 1 { // a shorter one is a drive
		name = name[prefix+1:]
	}
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	return join("sqlite:"+name, without(query, ofAFile...))
}
