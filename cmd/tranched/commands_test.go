package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/store"
	"tranche/store/storetest"
)

// tranched runs one command line as main would.
func tranched(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func TestServeNamesEveryProblemAtOnce(t *testing.T) {
	for _, name := range []string{"TRANCHE_DATABASE_URL", "DATABASE_URL", "TRANCHE_PUBLIC_URL", "TRANCHE_OIDC_ISSUER", "TRANCHE_OIDC_CLIENT_ID"} {
		t.Setenv(name, "")
	}
	code, _, errOut := tranched("serve", "--zone=Nowhere/Land", "--listen=nonsense")
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, word := range []string{"TRANCHE_DATABASE_URL", "TRANCHE_PUBLIC_URL", "TRANCHE_OIDC_ISSUER", "TRANCHE_OIDC_CLIENT_ID", "Nowhere/Land", "nonsense"} {
		if !strings.Contains(errOut, word) {
			t.Errorf("the problems do not name %s:\n%s", word, errOut)
		}
	}
}

func TestDemoListensOnThisMachineOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.org:80"} {
		if code, _, errOut := tranched("demo", "--listen="+address); code != 2 || !strings.Contains(errOut, "this machine only") {
			t.Errorf("%s: exit code %d: %s", address, code, errOut)
		}
	}
}

// One byte of one transfer, changed by a superuser: verify exits 1 and names the
// entry and the transfer.
func TestVerifyNamesEntryAndTransfer(t *testing.T) {
	db := storetest.New(t)
	d := &seeding{s: db.Store, issuer: "test"}
	if err := d.found(t.Context(), "lab", "Lab", seedPerson{Subject: "a", Name: "Ada", Role: "admin", At: "/lab"}); err != nil {
		t.Fatal(err)
	}
	pool, err := d.s.CreatePool(t.Context(), d.cmd("pool"), seedPools()[0])
	if err != nil {
		t.Fatal(err)
	}
	d.pools["h100"] = pool
	name, first, last, err := quarter(d.s.Now(), seedZone)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.openPeriod(t.Context(), store.PeriodInput{Name: name, First: first, Last: last, Zone: seedZone}, []supply{{"h100", 32, 950_000}}); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := tranched("verify", "--database-url="+db.URL)
	if code != 0 || !strings.Contains(out, "The books are right") {
		t.Fatalf("exit code %d: %s%s", code, out, errOut)
	}
	db.Exec(t, `update transfers set amount = amount + 1 where n = 0`)
	code, out, errOut = tranched("verify", "--database-url="+db.URL)
	entry := fmt.Sprintf("entry open:period:1:pool:%d, transfer 0", pool)
	if code != 1 || !strings.Contains(out, entry) {
		t.Errorf("exit code %d, want 1 and %q in:\n%s%s", code, entry, out, errOut)
	}
	code, out, _ = tranched("verify", "--json", "--database-url="+db.URL)
	var v verdict
	if err := json.Unmarshal([]byte(out), &v); code != 1 || err != nil || v.OK || len(v.Faults) == 0 {
		t.Errorf("exit code %d, error %v, verdict %+v", code, err, v)
	}
}

func TestVerifyHoldsTheAnchorsAgainstTheChain(t *testing.T) {
	db := storetest.New(t)
	anchors := filepath.Join(t.TempDir(), "anchors")
	write := func(text string) {
		if err := os.WriteFile(anchors, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# kept elsewhere\n\n7 " + strings.Repeat("ab", 32) + "\n")
	if code, out, _ := tranched("verify", "--anchor="+anchors, "--database-url="+db.URL); code != 1 || !strings.Contains(out, "7") {
		t.Errorf("exit code %d, want 1 for a seal that is gone: %s", code, out)
	}
	write("7 abcd\n")
	if code, _, errOut := tranched("verify", "--anchor="+anchors, "--database-url="+db.URL); code != 1 || !strings.Contains(errOut, "line 1") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// Setup may run at every start of a site.
func TestSetupTwice(t *testing.T) {
	db := storetest.New(t)
	args := []string{
		"setup", "--admin-url=" + db.URL, "--issuer=https://login.example.org", "--first-admin=ada", "--first-pool=h100",
		"--enrol-token=a-token-for-nodes", "--zone=Europe/Paris",
	}
	for range 2 {
		if code, out, errOut := tranched(args...); code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, errOut)
		}
	}
	health, err := db.Store.Health(t.Context())
	if err != nil || !health.HasRoot {
		t.Errorf("%+v, error %v", health, err)
	}
	periods, err := db.Store.Periods(t.Context())
	if err != nil || len(periods) != 1 {
		t.Errorf("%d periods, error %v", len(periods), err)
	}
}
