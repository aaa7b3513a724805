package embedpg

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// fetchVersion is the release of the @embedded-postgres packages that is used
// where no PostgreSQL is installed.
const fetchVersion = "18.4.0-beta.17"

// fetchSum pins each package's content.
func fetchSum(platform string) (string, bool) {
	sum, ok := map[string]string{
		"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
		"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
		"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
	}[platform]
	return sum, ok
}

// platform names this machine the way the packages do, e.g. linux-x64.
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

// fetch downloads PostgreSQL through npm into cache, checks it against the
// pinned sum and unpacks it; it happens once per machine.
func fetch(ctx context.Context, cache string) (_ binaries, err error) {
	sum, ok := fetchSum(platform())
	if !ok {
		return binaries{}, fmt.Errorf("there is no package for %s", platform())
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return binaries{}, errors.New("npm is not on PATH")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("make the cache: %w", err)
	}
	work, err := os.MkdirTemp(cache, "fetch")
	if err != nil {
		return binaries{}, fmt.Errorf("make the cache: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "@embedded-postgres/"+platform()+"@"+fetchVersion)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return binaries{}, fmt.Errorf("npm pack: %w: %s", err, lastLine(out))
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return binaries{}, fmt.Errorf("npm pack left %d archives (%v)", len(archives), err)
	}
	if err := checkSum(archives[0], sum); err != nil {
		return binaries{}, err
	}
	if err := unpack(archives[0], work); err != nil {
		return binaries{}, fmt.Errorf("unpack PostgreSQL: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return binaries{}, fmt.Errorf("open the unpacked PostgreSQL: %w", err)
	}
	home := filepath.Join(cache, fetchVersion)
	if err := os.Rename(filepath.Join(work, "package", "native"), home); err != nil && !errors.Is(err, fs.ErrExist) {
		return binaries{}, fmt.Errorf("put PostgreSQL in place: %w", err)
	}
	return inspect(ctx, filepath.Join(home, "bin"))
}

func checkSum(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha512.New()
	if _, err := io.Copy(hash, f); err != nil {
		return fmt.Errorf("read the package: %w", err)
	}
	if got := base64.StdEncoding.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("the fetched package has the sum %s instead of %s", got, want)
	}
	return nil
}

// unpack writes the archive's files under dir and restores the symbolic links,
// which npm packages cannot carry, from the list the package brings instead.
func unpack(archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return restoreLinks(root)
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeFile(root, header, files); err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, header *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if header.Mode&0o100 != 0 || strings.Contains(header.Name, "/native/bin/") {
		mode = 0o755
	}
	file, err := root.OpenFile(header.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

func restoreLinks(root *os.Root) error {
	text, err := root.ReadFile("package/native/pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("list of links: %w", err)
	}
	for _, link := range links {
		target := filepath.Join("package", link.Target)
		to, err := filepath.Rel(filepath.Dir(link.Target), link.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, target); err != nil {
			return err
		}
	}
	return nil
}
