// Package view draws Tranche's pages. View models are plain structs of display
// strings and integers; components turn them into HTML that works without
// JavaScript. The package decides nothing: handlers fill the models from store
// results, and every number a page shows arrives already rounded and named.
//
// Each page is one component of a Shell and a model, as JobPage is of a Shell and
// a Job. Shell says who looks, where the page stands and the one sentence that
// answers its question. Fields named in a model's "Posts" comment are the form
// names its handler reads.
package view
