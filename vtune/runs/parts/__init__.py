"""`vtune parts`: which parts there are, and whether those of a user's file keep their promises."""
