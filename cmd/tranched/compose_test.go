package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composeService is what the tests look at in docker-compose.yml.
type composeService struct {
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Build   struct {
		Target string `yaml:"target"`
	} `yaml:"build"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Healthcheck struct {
		Test    []string `yaml:"test"`
		Disable bool     `yaml:"disable"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
	Configs  map[string]struct {
		Content string `yaml:"content"`
	} `yaml:"configs"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComposeIsClosedAndHealthy(t *testing.T) {
	c := readCompose(t)
	for _, name := range []string{"postgres", "setup", "tranched", "dex", "node"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range c.Services {
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond this machine", name, p)
			}
		}
		if len(s.Healthcheck.Test) == 0 && !s.Healthcheck.Disable {
			t.Errorf("%s has no health check", name)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, named := c.Volumes[volume]; !named {
				t.Errorf("%s mounts %s, which is no named volume", name, v)
			}
		}
		for on, d := range s.DependsOn {
			if _, ok := c.Services[on]; !ok || d.Condition == "" {
				t.Errorf("%s depends on %s without a condition or such a service", name, on)
			}
		}
	}
}

// The commands and settings in the file are this program's.
func TestComposeSpeaksThisVersionsLanguage(t *testing.T) {
	c := readCompose(t)
	docker, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, s := range sources(t) {
		if s.pkg == "cmd/tranched" || s.pkg == "cmd/tranche" {
			source.WriteString(s.text)
		}
	}
	for name, s := range c.Services {
		if s.Build.Target != "" && !strings.Contains(string(docker), " AS "+s.Build.Target+"\n") {
			t.Errorf("%s builds %s, which the Dockerfile does not have", name, s.Build.Target)
		}
		for key := range s.Environment {
			if strings.HasPrefix(key, "TRANCHE_") && !strings.Contains(source.String(), key) {
				t.Errorf("%s sets %s, which no program reads", name, key)
			}
		}
	}
	var dex struct {
		Issuer        string `yaml:"issuer"`
		StaticClients []struct {
			ID           string   `yaml:"id"`
			Secret       string   `yaml:"secret"`
			RedirectURIs []string `yaml:"redirectURIs"`
		} `yaml:"staticClients"`
	}
	if err := yaml.Unmarshal([]byte(c.Configs["dex"].Content), &dex); err != nil {
		t.Fatal(err)
	}
	env := c.Services["tranched"].Environment
	if len(dex.StaticClients) != 1 || dex.Issuer != env["TRANCHE_OIDC_ISSUER"] || dex.StaticClients[0].ID != env["TRANCHE_OIDC_CLIENT_ID"] ||
		dex.StaticClients[0].Secret != env["TRANCHE_OIDC_CLIENT_SECRET"] ||
		!slices.Contains(dex.StaticClients[0].RedirectURIs, env["TRANCHE_PUBLIC_URL"]+"/sign-in/callback") {
		t.Errorf("Dex (%+v) and the server (%v) do not know each other", dex, env)
	}
}
