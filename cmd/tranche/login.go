package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tranche/web/api"
)

// login is what `tranche login` keeps, readable by its owner alone.
type login struct {
	Server string `json:"server"`
	Token  string `json:"token"`
}

// loginPath is where the login is kept: $XDG_CONFIG_HOME/tranche/login.json,
// or what stands for that on this system.
func loginPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("no folder for the login: %w", err)
		}
	}
	return filepath.Join(dir, "tranche", "login.json"), nil
}

func readLogin() (login, error) {
	path, err := loginPath()
	if err != nil {
		return login{}, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return login{}, nil
	}
	if err != nil {
		return login{}, err
	}
	var l login
	if err := json.Unmarshal(b, &l); err != nil {
		return login{}, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

func keepLogin(l login) (string, error) {
	path, err := loginPath()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	b, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// client gives the client for the chosen server: --server or TRANCHE_SERVER,
// TRANCHE_TOKEN, else the login. A login's token goes to its own server only.
func (t *terminal) client() (*api.Client, error) {
	l, err := readLogin()
	if err != nil {
		return nil, err
	}
	c := newClient(l.Server, l.Token)
	if t.Server != "" && strings.TrimRight(t.Server, "/") != l.Server {
		c = newClient(t.Server, "")
	}
	if token := os.Getenv("TRANCHE_TOKEN"); token != "" {
		c.Token = token
	}
	if c.Server == "" || c.Token == "" {
		return nil, &usageError{"not logged in; run: tranche login --server URL"}
	}
	return c, nil
}

func newClient(server, token string) *api.Client {
	return &api.Client{
		Server: strings.TrimRight(server, "/"), Token: token, HTTP: &http.Client{Timeout: 90 * time.Second},
		Tries: 4, RetryPause: 250 * time.Millisecond,
	}
}

type loginCommand struct {
	Token string `help:"API token. Without it the command asks, which keeps the token out of the shell's history." placeholder:"TOKEN"`
}

// Help adds examples.
func (loginCommand) Help() string {
	return `The token comes from your page on the server, "API tokens". It is checked, then
kept in tranche/login.json of your configuration folder, readable by you alone.

Examples:
  tranche login --server https://tranche.example.org
  tranche login --server http://localhost:8080 < token.txt`
}

// Run checks a token and keeps it.
func (c *loginCommand) Run(ctx context.Context, t *terminal) error {
	kept, err := readLogin()
	if err != nil {
		return err
	}
	server := strings.TrimRight(t.Server, "/")
	if server == "" {
		server = kept.Server
	}
	if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &usageError{"name the server: tranche login --server https://…"}
	}
	token := c.Token
	if token == "" {
		if token, err = t.askSecret("API token: "); err != nil {
			return err
		}
	}
	if token == "" {
		return &usageError{"no token given"}
	}
	who, err := newClient(server, token).WhoAmI(ctx)
	if err != nil {
		return err
	}
	path, err := keepLogin(login{Server: server, Token: token})
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	if t.JSON {
		return writeJSON(t.Out, who)
	}
	_, err = fmt.Fprintf(t.Out, "Logged in to %s as %s. The token is kept in %s.\n", server, who.Name, path)
	return err
}

// askSecret reads one line without showing it on a terminal.
func (t *terminal) askSecret(prompt string) (string, error) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprint(t.Err, prompt)
		if echo(false) == nil {
			defer func() { _ = echo(true); fmt.Fprintln(t.Err) }()
		}
	}
	line, err := t.In.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// echo switches the terminal's echo.
func echo(on bool) error {
	arg := "-echo"
	if on {
		arg = "echo"
	}
	cmd := exec.Command("stty", arg)
	cmd.Stdin = os.Stdin
	return cmd.Run()
}

type whoamiCommand struct{}

// Run prints the token's owner.
func (whoamiCommand) Run(ctx context.Context, t *terminal) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	return t.print(who, func(p *page) {
		p.line("%s <%s> at %s", who.Name, who.Mail, c.Server)
		for _, r := range who.Roles {
			p.line("  %s\tat %s%s", r.Role, r.Path, until(r.Until))
		}
		if who.TokenProject != "" {
			p.line("The token is bound to %s.", who.TokenProject)
		}
		if len(who.Projects) == 0 && len(who.Roles) == 0 {
			p.line("You may not submit to any project yet. Ask a PI to invite you.")
		}
	})
}

type balanceCommand struct {
	Project string `arg:"" optional:"" help:"Path of a project; default all you may see."`
	Pool    string `help:"Only this pool."`
}

// Help adds examples.
func (balanceCommand) Help() string {
	return `"Usable" is what a job could draw on now, with the group that limits it.

Examples:
  tranche balance
  tranche balance /vision/detect --pool h100`
}

// Run prints positions.
func (c *balanceCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Balances(ctx, c.Project, c.Pool)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		if len(got.Balances) == 0 {
			p.line("No project with a ledger here.")
			return
		}
		p.line("PROJECT\tPOOL\tUSABLE\tSET ASIDE\tRUNNING\tSPENT\tAWARDED\tLIMITED BY")
		for _, b := range got.Balances {
			p.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", b.Project, b.Pool, b.Usable.Hours(), b.Held.Hours(),
				b.Running.Hours(), b.Spent.Hours(), b.Awarded.Hours(), b.LimitedBy)
		}
		p.line("GPU-hours as of %s.", instant(got.At))
	})
}
