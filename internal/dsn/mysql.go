package dsn

import (
	"errors"
	"strings"
)

// MySQLDatabase returns the DSN of another database on the same server. The database's name has
// only letters, digits and underscores.
func MySQLDatabase(dsn, database string) (string, error) {
	if scheme, rest, ok := cutPrefix(dsn, "mysql://", "mariadb://"); ok {
		path, query, _ := strings.Cut(rest, "?")
		authority, _, _ := strings.Cut(path, "/")
		return join(scheme+authority+"/"+database, query), nil
	}
	// In the driver's own form the last slash stands before the database's name. A password before
	// it may have any character.
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 {
		return "", errors.New("the DSN has no slash before the database's name")
	}
	_, query, _ := strings.Cut(dsn[slash:], "?")
	return join(dsn[:slash+1]+database, query), nil
}
