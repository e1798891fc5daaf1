//go:build odbc && cgo

package odbc

/*
#cgo LDFLAGS: -lodbcinst
#include <stdlib.h>
#include <odbcinst.h>
*/
import "C"

import (
	"errors"
	"strings"
	"unsafe"
)

var errManagerPools = errors.New("unixODBC pools connections itself ([ODBC] Pooling is on in odbcinst.ini), and two pools fight: " +
	"one hands out what another borrower has left there; set Pooling = No in the section [ODBC] (odbcinst -j says which file)")

// refuseManagerPooling asks for the setting as the driver manager itself does (unixODBC,
// SQLAllocHandle). The driver manager reads the setting once, when it makes the environment. That
// is before this package runs, so this package cannot switch pooling off.
func refuseManagerPooling() error {
	switch value := strings.ToUpper(managerSetting("ODBC", "Pooling")); {
	case strings.HasPrefix(value, "1"), strings.HasPrefix(value, "Y"), strings.HasPrefix(value, "ON"):
		return errManagerPools
	}
	return nil
}

// managerSetting reads odbcinst.ini, wherever this unixODBC looks for it.
func managerSetting(section, entry string) string {
	const room = 64
	names := [...]*C.char{C.CString(section), C.CString(entry), C.CString(""), C.CString("odbcinst.ini")}
	value := (*C.char)(C.calloc(1, room))
	defer func() {
		for _, name := range names {
			C.free(unsafe.Pointer(name))
		}
		C.free(unsafe.Pointer(value))
	}()
	C.SQLGetPrivateProfileString(names[0], names[1], names[2], value, room-1, names[3])
	return strings.TrimSpace(C.GoString(value))
}
