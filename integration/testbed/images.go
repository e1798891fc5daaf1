package testbed

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// chosenImages is what images/choose.sh ("make images") decided.
const chosenImages = "images/chosen.env"

// image returns the image to run: the one the environment variable names, else
// the one "make images" decided on, else the official one.
func image(variable, official string) string {
	if name := os.Getenv(variable); name != "" {
		return name
	}
	if name := chosen(variable); name != "" {
		return name
	}
	return official
}

// HasMySQL reports whether an image of MySQL was given, or could be built.
func HasMySQL() bool {
	variable, _ := OracleMySQL.image()
	return os.Getenv(variable) != "" || chosen(variable) != ""
}

func chosen(variable string) string {
	_, here, _, _ := runtime.Caller(0)
	file, err := os.Open(filepath.Join(filepath.Dir(here), "..", filepath.FromSlash(chosenImages)))
	if err != nil {
		return "" // Never decided: the official image is tried.
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && name == variable {
			return value
		}
	}
	return ""
}
