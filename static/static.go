// Package static holds the files a browser loads: the style sheet, the small
// script and vendored libraries, each served under an address that contains the
// hash of its content, so that caches never hold an old one.
package static

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed *.css *.js *.svg
var files embed.FS

// Prefix is where Handler is mounted.
const Prefix = "/static/"

// addresses maps each embedded file to its address; it never changes.
var addresses = address()

func address() map[string]string {
	byName := map[string]string{}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the embedded folder is always there
	}
	for _, e := range entries {
		b, err := fs.ReadFile(files, e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(e.Name())
		byName[e.Name()] = Prefix + strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
	}
	return byName
}

// URL is the address of a file, e.g. URL("app.css") gives
// "/static/app.3f2a9c1b0d4e.css". A name that is not embedded gives the plain
// address, which answers 404: tests see it.
func URL(name string) string {
	if a, ok := addresses[name]; ok {
		return a
	}
	return Prefix + name
}

// Handler serves the files. Only the address with the present hash is answered;
// it may be kept for ever.
func Handler() http.Handler {
	byURL := make(map[string]string, len(addresses))
	for name, a := range addresses {
		byURL[a] = name
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := byURL[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeFileFS(w, r, files, name)
	})
}
