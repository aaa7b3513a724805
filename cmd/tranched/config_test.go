package main

import (
	"strings"
	"testing"

	"tranche/ledger"
	"tranche/store"
)

func TestIdentityRolesAreReadFromTheLastMarks(t *testing.T) {
	t.Parallel()
	roles, err := identityRoles([]string{"gpu-admins=admin@/institute", "cn=leads@corp,ou=x=manager@/institute/vision"})
	want := []store.IdentityRole{{Group: "gpu-admins", Role: ledger.Admin, Path: "/institute"}, {Group: "cn=leads@corp,ou=x", Role: ledger.Manager, Path: "/institute/vision"}}
	if err != nil || len(roles) != 2 || roles[0] != want[0] || roles[1] != want[1] {
		t.Errorf("read %+v, %v", roles, err)
	}
	for _, wrong := range []string{"", "admins", "admins=admin", "admins=boss@/x", "=admin@/x", "a=admin@x"} {
		if _, err := identityRoles([]string{wrong}); err == nil || !strings.Contains(err.Error(), "group=role@path") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestConfigAnswersThePublicHostByDefault(t *testing.T) {
	t.Parallel()
	c := Config{PublicURL: "https://tranche.example.org/"}
	if got := c.hosts(); len(got) != 1 || got[0] != "tranche.example.org" {
		t.Errorf("hosts %v", got)
	}
	c.Hosts = []string{"a", "b"}
	if got := c.hosts(); len(got) != 2 {
		t.Errorf("hosts %v", got)
	}
}
