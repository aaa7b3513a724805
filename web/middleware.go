package web

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

// maxBody bounds what one request may send, in bytes.
const maxBody = 1 << 20

// visit is what the chain knows about one request.
type visit struct {
	id     string // reference for people and logs
	person int64  // once known, for the log
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// identify gives each request a reference that its log lines and its error page share.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [8]byte
		rand.Read(b[:]) // never fails
		v := &visit{id: hex.EncodeToString(b[:])}
		w.Header().Set("X-Request-Id", v.id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
	})
}

// recoverPanic answers 500 with the reference; the stack goes to the log only.
func (s *server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // net/http's own way to drop a connection
			}
			s.log.ErrorContext(r.Context(), "handler panicked", "request", visitOf(r.Context()).id,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			s.fail(w, r, fmt.Errorf("panic: %v", p))
		}()
		next.ServeHTTP(w, r)
	})
}

// statusWriter remembers what was answered. Unwrap keeps http.ResponseController working.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += n
	return n, err
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logRequest writes one line per request: the route's pattern, never the address
// itself, whose query or path may carry a secret.
func (s *server) logRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.store.Real()
		sw := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(sw, r)
		pattern := "none"
		if rc := chi.RouteContext(r.Context()); rc != nil && rc.RoutePattern() != "" {
			pattern = rc.RoutePattern()
		}
		v := visitOf(r.Context())
		level := slog.LevelDebug
		if sw.status >= 500 && r.Context().Err() == nil {
			level = slog.LevelError
		}
		s.log.Log(r.Context(), level, "request", "request", v.id, "method", r.Method, "route", pattern,
			"status", sw.status, "bytes", sw.bytes, "person", v.person,
			"took", time.Duration(s.store.Real()-began)*time.Microsecond)
	})
}

// checkHost refuses requests for another site's name, which is how a foreign
// page would reach a server on loopback. Probes ask by whatever name they have.
func (s *server) checkHost(next http.Handler) http.Handler {
	if len(s.cfg.Hosts) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
		if !probe && !slices.Contains(s.cfg.Hosts, r.Host) {
			http.Error(w, "This server answers for "+strings.Join(s.cfg.Hosts, ", ")+" only.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// harden sets the headers that keep a page to itself. The provider's origin may
// take the sign-in form's redirect.
func (s *server) harden(next http.Handler) http.Handler {
	forms := "'self'"
	if issuer, err := url.Parse(s.cfg.OIDC.Issuer); err == nil && issuer.Host != "" {
		forms += " " + issuer.Scheme + "://" + issuer.Host
	}
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action " + forms
	secure := strings.HasPrefix(s.cfg.PublicURL, "https:")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// crossOrigin refuses what another site makes a browser send.
func (s *server) crossOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "This form was sent from another site. Open the page here and send it again.", http.StatusForbidden)
	}))
	return protection.Handler(next)
}
