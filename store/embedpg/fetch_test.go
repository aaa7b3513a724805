package embedpg

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pack writes a package as npm makes them: regular files only.
func pack(t *testing.T, files map[string]string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "p.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	zipped := gzip.NewWriter(f)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{archive, zipped, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}

func TestUnpackRestoresLinksAndRights(t *testing.T) {
	t.Parallel()
	archive := pack(t, map[string]string{
		"package/native/bin/postgres":      "server",
		"package/native/lib/libpq.so.5.18": "library",
		"package/native/pg-symlinks.json":  `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`,
	})
	dir := t.TempDir()
	if err := unpack(archive, dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "package/native/bin/postgres"))
	if err != nil || info.Mode().Perm()&0o111 != 0o111 {
		t.Errorf("postgres is not executable: %v %v", info, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "package/native/lib/libpq.so.5"))
	if err != nil || string(text) != "library" {
		t.Errorf("through the link: %q, %v", text, err)
	}
}

func TestUnpackStaysInItsFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unpack(pack(t, map[string]string{"package/../../evil": "x"}), filepath.Join(dir)); err == nil {
		t.Error("a file outside the folder was written")
	}
}

func TestChangedPackageIsRefused(t *testing.T) {
	t.Parallel()
	sum, ok := fetchSum("linux-x64")
	if !ok {
		t.Fatal("no sum for linux-x64")
	}
	if err := checkSum(pack(t, map[string]string{"package/a": "b"}), sum); err == nil || !strings.Contains(err.Error(), "instead of") {
		t.Errorf("got %v, want a refusal of the sum", err)
	}
}
