package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"tranche/store"
)

// verifyCommand recomputes the books.
type verifyCommand struct {
	DatabaseURL      string `env:"TRANCHE_DATABASE_URL,DATABASE_URL" help:"Address of the database."`
	DatabasePassword string `env:"TRANCHE_DATABASE_PASSWORD" help:"Password of the server's role, if the address names none."`
	Anchor           string `help:"File of seal heads kept elsewhere, one \"NUMBER HASH\" a line, that must still be in the chain." type:"existingfile" placeholder:"FILE"`
	JSON             bool   `name:"json" help:"Print one JSON object."`
}

func (c *verifyCommand) Run(ctx context.Context, t terminal) error {
	if c.DatabaseURL == "" {
		return errors.New("TRANCHE_DATABASE_URL is missing: say which books to verify")
	}
	var anchors []store.Anchor
	if c.Anchor != "" {
		file, err := os.Open(c.Anchor)
		if err != nil {
			return fmt.Errorf("open the anchors: %w", err)
		}
		anchors, err = readAnchors(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", c.Anchor, err)
		}
	}
	s, err := store.Open(ctx, store.Config{URL: c.DatabaseURL, Password: c.DatabasePassword, Clock: clock, Log: t.Log, MaxConns: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	report, err := s.Verify(ctx, anchors...)
	if err != nil {
		return err
	}
	if err := printReport(t.Out, report, c.JSON); err != nil {
		return err
	}
	if !report.OK() {
		return errFailed
	}
	return nil
}

// readAnchors reads "NUMBER HASH" lines; blank lines and those after # are left out.
func readAnchors(in io.Reader) ([]store.Anchor, error) {
	var anchors []store.Anchor
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		var a store.Anchor
		var hash string
		if n, err := fmt.Sscanf(text, "%d %s", &a.N, &hash); err != nil || n != 2 {
			return nil, fmt.Errorf("line %d is not \"NUMBER HASH\"", number)
		}
		raw, err := hex.DecodeString(hash)
		if err != nil || len(raw) != len(a.Hash) {
			return nil, fmt.Errorf("line %d: the hash is not 64 hexadecimal digits", number)
		}
		a.Hash = [32]byte(raw)
		anchors = append(anchors, a)
	}
	return anchors, lines.Err()
}

// verdict is the report as JSON.
type verdict struct {
	OK        bool     `json:"ok"`
	Entries   int64    `json:"entries"`
	Transfers int64    `json:"transfers"`
	Accounts  int64    `json:"accounts"`
	Unsealed  int64    `json:"unsealed"`
	Sum       int64    `json:"books_sum"`
	HeadN     int64    `json:"head_n"`
	HeadHash  string   `json:"head_hash"`
	Faults    []string `json:"faults"`
	FaultsAll int64    `json:"faults_all"`
}

func printReport(out io.Writer, r *store.Report, asJSON bool) error {
	v := verdict{
		OK: r.OK(), Entries: r.Entries, Transfers: r.Transfers, Accounts: r.Accounts, Unsealed: r.Unsealed, Sum: int64(r.Sum),
		HeadN: r.Head.N, HeadHash: hex.EncodeToString(r.Head.Hash[:]), Faults: []string{}, FaultsAll: r.FaultsAll,
	}
	for _, f := range r.Faults {
		v.Faults = append(v.Faults, f.String())
	}
	if asJSON {
		return json.NewEncoder(out).Encode(v)
	}
	for _, f := range v.Faults {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return err
		}
	}
	word := "The books are right"
	if !v.OK {
		word = fmt.Sprintf("The books differ in %d places", v.FaultsAll)
	}
	_, err := fmt.Fprintf(out, "%s: %d entries, %d transfers, %d accounts, sum %d, %d entries not sealed yet.\nAnchor: %d %s\n",
		word, v.Entries, v.Transfers, v.Accounts, v.Sum, v.Unsealed, v.HeadN, v.HeadHash)
	return err
}
