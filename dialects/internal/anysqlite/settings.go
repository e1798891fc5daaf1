package anysqlite

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

var (
	_ dialects.SettingsKeeper  = Dialect{}
	_ dialects.SettingRepeater = (*Session)(nil)
)

// Settings: PRAGMA, ATTACH and DETACH, as far as they concern one connection.
func (Dialect) Settings(query string) (settings []dialects.Setting, alone, complete bool) {
	return classifier.Settings(query)
}

// Repeatable returns an ATTACH of the same file by its whole name, which makes no file.
func (s *Session) Repeatable(ctx context.Context, setting dialects.Setting, args []driver.NamedValue) string {
	schema := strings.ReplaceAll(strings.TrimPrefix(setting.Name, "ATTACH "), "'", "''")
	from, to, expr := classifier.AttachedFile(setting.Text)
	row, err := firstRow(ctx, s.Conn(), "SELECT file, "+expr+" FROM pragma_database_list WHERE lower(name) = '"+schema+"'", args...)
	if err != nil || text(row[0]) == "" { // in memory
		return setting.Text
	}
	uri := "'" + strings.ReplaceAll(uriToOpen(text(row[0]), text(row[1])), "'", "''") + "'"
	if len(args) > 0 {
		uri = "coalesce(" + uri + ", " + expr + ")" // the arguments keep their places
	}
	return setting.Text[:from] + uri + setting.Text[to:]
}

var inURI = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// uriToOpen is a URI of file, with the parameters of the name by which it was opened. It makes no
// file.
func uriToOpen(file, name string) string {
	params := []string{"mode=rw"}
	if strings.HasPrefix(name, "file:") {
		name, _, _ = strings.Cut(name, "#")
		_, query, _ := strings.Cut(name, "?")
		for param := range strings.SplitSeq(query, "&") {
			switch {
			case param == "" || param == "mode=rwc":
			case strings.HasPrefix(param, "mode="):
				params[0] = param // ro, rw
			default:
				params = append(params, param)
			}
		}
	}
	return "file:" + inURI.Replace(file) + "?" + strings.Join(params, "&")
}
