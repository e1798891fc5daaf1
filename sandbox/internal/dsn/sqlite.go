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
